//! Groups: how they are cut, and what they take.

use super::{MIB, close, pool, pool_with};
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::pool::{Buffer, Group, GroupRequest, Pool};

fn group(pool: &Pool, bytes: usize, row_bytes: Option<usize>) -> Result<Group, BlockError> {
    pool.rent_group(&GroupRequest { bytes, row_bytes, clean: false, timeout: None })
}

#[test]
fn parts_are_as_long_as_rows_allow() {
    let (pool, twin) = pool();
    // (bytes, row, parts, length of the last)
    let cases = [
        (0, None, 0, 0),
        (1, None, 1, 1),
        (MIB, None, 1, MIB),
        (BLOCK_BYTES, None, 1, BLOCK_BYTES),
        (BLOCK_BYTES + 1, None, 2, 1),
        (16 * MIB, None, 4, BLOCK_BYTES),
        (9 * BLOCK_BYTES, Some(1), 9, BLOCK_BYTES),
        (120_000 * 100, Some(120_000), 3, 120_000 * 100 - 2 * 34 * 120_000),
        (120_000 * 68, Some(120_000), 2, 34 * 120_000),
        (120_000 * 68 + 1, Some(120_000), 3, 1),
        (10 * 3 * MIB, Some(3 * MIB), 10, 3 * MIB),
        (3 * BLOCK_BYTES, Some(BLOCK_BYTES), 3, BLOCK_BYTES),
        (3 * 5 * MIB, Some(5 * MIB), 3, 5 * MIB),
        (7, Some(usize::MAX), 1, 7),
    ];
    for (bytes, row, parts, last) in cases {
        let group = group(&pool, bytes, row).unwrap();
        let lengths: Vec<usize> = group.parts().iter().map(Buffer::len).collect();
        assert_eq!((lengths.len(), lengths.last().copied().unwrap_or(0)), (parts, last), "{bytes} {row:?}");
        assert_eq!((lengths.iter().sum::<usize>(), group.len(), group.is_empty()), (bytes, bytes, bytes == 0));
        let whole = lengths.split_last().map_or(&[][..], |(_, whole)| whole);
        assert!(whole.iter().all(|&length| length == group.part_bytes()));
        assert!(row.is_none_or(|row| group.part_bytes().is_multiple_of(row) && group.row_bytes() == row));
    }
    close(pool, twin);
}

#[test]
fn every_row_is_whole_and_can_be_written() {
    let (pool, twin) = pool();
    for row in [1000, 120_000, 3 * MIB, 5 * MIB] {
        let rows = 12 * MIB / row + 3;
        let mut group = group(&pool, row * rows - 7, Some(row)).unwrap();
        assert_eq!(group.rows(), rows);
        for y in 0..rows {
            let bytes = group.row_mut(y).unwrap();
            assert_eq!(bytes.len(), if y + 1 == rows { row - 7 } else { row });
            bytes.fill(y as u8);
        }
        for y in 0..rows {
            assert!(group.row(y).unwrap().iter().all(|&byte| byte == y as u8));
        }
        assert!(group.row(rows).is_none() && group.row(usize::MAX).is_none());
        group.parts_mut()[0].as_mut_slice()[0] = 77;
        assert_eq!(group.row(0).unwrap()[0], 77);
        let parts = group.into_parts();
        assert_eq!(parts[0].as_slice()[0], 77);
    }
    close(pool, twin);
}

#[test]
fn warm_blocks_are_taken_and_only_the_rest_is_mapped() {
    let (pool, twin) = pool();
    drop(group(&pool, 6 * BLOCK_BYTES, None).unwrap());
    assert_eq!((pool.stats().fresh, pool.stats().idle), (6, 6 * BLOCK_BYTES as u64));
    let nine = group(&pool, 9 * BLOCK_BYTES, None).unwrap();
    assert_eq!((pool.stats().fresh, pool.stats().hits_block), (9, 6));
    drop(nine);
    assert_eq!(pool.stats().idle, 9 * BLOCK_BYTES as u64);
    close(pool, twin);
}

#[test]
fn the_last_short_part_may_be_a_piece() {
    let (pool, twin) = pool();
    let group = group(&pool, BLOCK_BYTES + 5000, None).unwrap();
    assert!(pool.stats().in_use < (BLOCK_BYTES + 8192) as u64);
    drop(group);
    close(pool, twin);
}

#[test]
fn a_part_of_a_group_may_outlive_it() {
    let (pool, twin) = pool();
    let mut parts = group(&pool, 3 * BLOCK_BYTES, None).unwrap().into_parts();
    let mut kept = parts.pop().unwrap();
    drop(parts);
    kept.as_mut_slice().fill(1);
    assert_eq!((pool.stats().live, pool.stats().in_use), (1, BLOCK_BYTES as u64));
    drop(kept);
    close(pool, twin);
}

#[test]
fn clean_groups_read_as_zero_warm_or_fresh() {
    let (pool, twin) = pool();
    for _ in 0..3 {
        let request = GroupRequest { bytes: 10 * MIB, row_bytes: Some(1000), clean: true, timeout: None };
        let mut group = pool.rent_group(&request).unwrap();
        for part in group.parts_mut() {
            assert!(part.as_slice().iter().all(|&byte| byte == 0));
            part.as_mut_slice().fill(0xEE);
        }
    }
    close(pool, twin);
}

#[test]
fn nonsense_is_refused() {
    let (pool, twin) = pool();
    assert!(matches!(group(&pool, 100, Some(0)), Err(BlockError::Setting { .. })));
    for bytes in [1 << 46, usize::MAX] {
        assert!(matches!(group(&pool, bytes, None), Err(BlockError::Machine { .. })));
        assert!(matches!(group(&pool, bytes, Some(bytes)), Err(BlockError::Machine { .. })));
    }
    assert_eq!(twin.maps(), 0);
    close(pool, twin);
}

#[test]
fn rows_longer_than_all_memory_are_no_part_of_the_price() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 8192);
    for row in [usize::MAX, usize::MAX - 4096, isize::MAX as usize] {
        assert_eq!(group(&pool, 8192, Some(row)).unwrap().len(), 8192);
        assert!(matches!(group(&pool, 8193, Some(row)), Err(BlockError::Total { .. })));
    }
    close(pool, twin);
}

#[test]
fn many_groups_beyond_the_pool_are_served() {
    let (pool, twin) = pool_with(|settings| settings.pool_bytes = 8 * BLOCK_BYTES as u64);
    let groups: Vec<Group> = (0..16).map(|_| group(&pool, 4 * BLOCK_BYTES, None).unwrap()).collect();
    assert_eq!(pool.stats().in_use, 64 * BLOCK_BYTES as u64);
    drop(groups);
    assert_eq!(pool.stats().idle, 8 * BLOCK_BYTES as u64, "what is over the pool's size goes back at once");
    close(pool, twin);
}
