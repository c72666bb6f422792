//! Lists of pages, by class and fullness.

/// No page.
pub(crate) const NONE: u32 = u32::MAX;

/// `PageMeta::until` of a page that is being filled: it is on no list, however much becomes free in it.
pub(crate) const ACTIVE: u16 = u16::MAX;

/// Pages are sorted by quarters of fullness.
pub(crate) const QUARTERS: usize = 4;

/// The quarter of a page of which `taken` of `slots` are taken, not all: `⌊QUARTERS × taken / slots⌋` without a
/// division.
#[inline]
pub(crate) fn quarter(taken: u32, slots: u32) -> usize {
    let parts = taken * QUARTERS as u32;
    (1..QUARTERS as u32).map(|bound| usize::from(parts >= bound * slots)).sum()
}

/// The number of whole-free slots at which a page of `slots` slots leaves `quarter`: it is emptier then, or empty.
fn leaves(quarter: usize, slots: u32) -> u32 {
    let kept = (quarter as u32 * slots).div_ceil(QUARTERS as u32);
    (slots - kept + 1).min(slots)
}

/// What the heap knows of a page outside the block. For a page of slots
/// `slots = whole + annex + (body taken, head free) + (both taken)`. Heads of retired slots count as taken.
///
/// Of a size that shifts into place, two to a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct PageMeta {
    /// Size class, or `None` for a page that is not in use.
    pub class: Option<u8>,
    /// The quarter that lists the page.
    pub quarter: Option<u8>,
    /// True while the page is listed for its annexes.
    pub listed_annex: bool,
    /// Slots of which nothing is taken.
    pub whole: u32,
    /// From this many whole-free slots on the page must be listed anew; nothing else that frees a slot has to be looked
    /// at.
    pub until: u16,
    /// Slots whose head is taken and whose body is free.
    pub annex: u16,
    /// Slots that are retired: their heads stay taken as long as the page serves its class.
    pub retired: u16,
    pub links: [Links; 2],
}

impl PageMeta {
    pub const UNUSED: Self = Self {
        class: None,
        quarter: None,
        listed_annex: false,
        whole: 0,
        until: 1,
        annex: 0,
        retired: 0,
        links: [Links { previous: NONE, next: NONE }; 2],
    };

    /// Whether a page of `slots` slots, which is not being filled, is to be given back: each is free or retired, and no
    /// body let.
    pub fn is_done(&self, slots: u32) -> bool {
        self.annex == self.retired && self.whole + u32::from(self.annex) == slots && self.until != ACTIVE
    }

    /// What `until` is to be when the page is listed in `quarter`: no later than when the last slot that is not retired
    /// becomes free. When all of them are already, whole slots are not what the page waits for.
    pub fn listed_until(&self, quarter: usize, slots: u32) -> u16 {
        leaves(quarter, slots).min(slots - u32::from(self.retired)).max(self.whole + 1) as u16
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
}

/// Which of a page's two list memberships is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum List {
    Whole = 0,
    Annex = 1,
}

/// The pages of one class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shelf {
    /// The page that allocations come from now; it stands on no list.
    pub active: u32,
    /// The bitmap word of the active page that `mask` was taken from.
    pub word: u16,
    /// Whole-free slots of that word that are still to be handed out.
    pub mask: u64,
    /// Pages with whole-free slots, by fullness: the last quarter is the fullest.
    pub quarters: [u32; QUARTERS],
    /// Pages with annexes.
    pub annexes: u32,
    /// Whether there was ever a page: one more is filled as that one was.
    pub grown: bool,
}

impl Shelf {
    pub const EMPTY: Self =
        Self { active: NONE, word: 0, mask: 0, quarters: [NONE; QUARTERS], annexes: NONE, grown: false };
}

/// Puts a page at the front of a list.
pub(crate) fn link(pages: &mut [PageMeta], list: List, first: &mut u32, page: u32) {
    let (list, next) = (list as usize, *first);
    pages[page as usize].links[list] = Links { previous: NONE, next };
    if next != NONE {
        pages[next as usize].links[list].previous = page;
    }
    *first = page;
}

/// Takes a page out of a list.
pub(crate) fn unlink(pages: &mut [PageMeta], list: List, first: &mut u32, page: u32) {
    let list = list as usize;
    let Links { previous, next } = pages[page as usize].links[list];
    if previous == NONE {
        *first = next;
    } else {
        pages[previous as usize].links[list].next = next;
    }
    if next != NONE {
        pages[next as usize].links[list].previous = previous;
    }
}

/// The pages of a list, front to back.
pub(crate) fn walk(pages: &[PageMeta], list: List, first: u32) -> impl Iterator<Item = u32> {
    let step = move |page: u32| (page != NONE).then_some(page);
    std::iter::successors(step(first), move |&page| step(pages[page as usize].links[list as usize].next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_listed_by_its_quarter_and_leaves_it_in_time() {
        for slots in 1..=8192 {
            for taken in (0..slots).step_by(1 + slots as usize / 60) {
                let now = quarter(taken, slots);
                assert_eq!(now, taken as usize * QUARTERS / slots as usize, "{taken} of {slots}");
                // The first number of whole-free slots, from here on, at which the page belongs elsewhere.
                let stays = |&whole: &u32| whole < slots && quarter(slots - whole, slots) == now;
                let until = (slots - taken..=slots).find(|whole| !stays(whole)).unwrap();
                assert!(taken == 0 || leaves(now, slots) == until, "{taken} of {slots}");
            }
        }
    }
}
