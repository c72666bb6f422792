//! A quad tree, as a scene graph holds one: every inner node has four children, built depth first.
//!
//! ```text
//!   leaf 24 B        inner node, three sizes 48 B + 32 B        inner node, one piece 56 B
//!   ┌──────────┐     ┌──────────┬──────────────────┐            ┌──────────┬─────────────┐
//!   │ Node     │     │ Node     │ list, len, room  │            │ Node     │ 4 × child   │
//!   └──────────┘     └──────────┴──┬───────────────┘            └──────────┴─────────────┘
//!                                  └▶ 4 × child
//! ```
//!
//! Nodes are numbered in the order of building, which is also that of walking, so a walk checks each node's content.

use std::alloc::Layout;
use std::ptr::{self, NonNull};

use crate::subject::{Kind, Subject};

/// Children of an inner node.
pub const BRANCHES: usize = 4;

/// What every node begins with; a leaf is nothing else. Stands for a class with a virtual table and a reference count.
#[repr(C)]
pub struct Node {
    branches: u64,
    number: u64,
    /// The first word of a leaf's side data, or null.
    pub side: *mut u64,
}

impl Node {
    /// A node without children.
    pub fn leaf(number: u64) -> Self {
        Self { branches: 0, number, side: ptr::null_mut() }
    }

    /// Its place in the order of building.
    pub fn number(&self) -> u64 {
        self.number
    }
}

type Child = NonNull<Node>;

/// How an inner node is laid out.
pub trait Shape: 'static {
    /// An inner node whose children are not set yet.
    fn inner<S: Subject>(subject: &S, number: u64) -> Child;

    /// Where the children are.
    ///
    /// # Safety
    /// `node` is a live inner node of this shape.
    unsafe fn children(node: Child) -> NonNull<Child>;

    /// Frees an inner node, not its children.
    ///
    /// # Safety
    /// As for `children`, `subject` made the node, and nobody uses it any more.
    unsafe fn free_inner<S: Subject>(subject: &S, node: Child);
}

/// Nodes of a tree of `levels` levels below its root.
pub fn nodes_of(levels: u32) -> u64 {
    (4_u64.pow(levels + 1) - 1) / 3
}

const LEAF: Layout = Layout::new::<Node>();
const LIST: Layout = Layout::new::<[Child; BRANCHES]>();

#[inline]
fn make<T, S: Subject>(subject: &S, content: T) -> NonNull<T> {
    let place = subject.alloc(Kind::Nodes, Layout::new::<T>()).cast::<T>();
    // SAFETY: the subject gave room for a `T`, aligned for it, that nobody else uses.
    unsafe { place.write(content) };
    place
}

/// An inner node and its list of children: two objects.
pub struct ThreeSizes;

#[repr(C)]
struct Group {
    node: Node,
    children: NonNull<Child>,
    length: usize,
    capacity: usize,
}

impl Shape for ThreeSizes {
    #[inline]
    fn inner<S: Subject>(subject: &S, number: u64) -> Child {
        let node = Node { branches: BRANCHES as u64, number, side: ptr::null_mut() };
        let group = Group { node, children: NonNull::dangling(), length: BRANCHES, capacity: BRANCHES };
        let group = make(subject, group);
        let children = subject.alloc(Kind::Nodes, LIST).cast();
        // SAFETY: the group was just made and is nobody else's.
        unsafe { (*group.as_ptr()).children = children };
        group.cast()
    }

    #[inline]
    unsafe fn children(node: Child) -> NonNull<Child> {
        // SAFETY: the caller says that this is a group; its list lives as long as it.
        unsafe { node.cast::<Group>().as_ref().children }
    }

    #[inline]
    unsafe fn free_inner<S: Subject>(subject: &S, node: Child) {
        // SAFETY: the caller says that this is a group of the subject's without users; list and group are freed once.
        unsafe {
            subject.free(Kind::Nodes, Self::children(node).cast(), LIST);
            subject.free(Kind::Nodes, node.cast(), Layout::new::<Group>());
        }
    }
}

/// An inner node that holds its children itself.
pub struct OnePiece;

#[repr(C)]
struct Quad {
    node: Node,
    children: [Option<Child>; BRANCHES],
}

impl Shape for OnePiece {
    #[inline]
    fn inner<S: Subject>(subject: &S, number: u64) -> Child {
        let node = Node { branches: BRANCHES as u64, number, side: ptr::null_mut() };
        make(subject, Quad { node, children: [None; BRANCHES] }).cast()
    }

    #[inline]
    unsafe fn children(node: Child) -> NonNull<Child> {
        // SAFETY: the caller says that this is a quad; an optional child is as large as a child.
        unsafe { NonNull::new_unchecked(&raw mut (*node.cast::<Quad>().as_ptr()).children).cast() }
    }

    #[inline]
    unsafe fn free_inner<S: Subject>(subject: &S, node: Child) {
        // SAFETY: the caller says that this is a quad of the subject's without users.
        unsafe { subject.free(Kind::Nodes, node.cast(), Layout::new::<Quad>()) }
    }
}

/// Builds a tree of `levels` levels below its root; `next` is the number of the next node.
pub fn build<H: Shape, S: Subject>(subject: &S, levels: u32, next: &mut u64) -> Child {
    build_with::<H, S>(subject, levels, next, &mut |_| ())
}

/// As [`build`], and calls `dress` with each leaf as soon as it is made.
pub fn build_with<H: Shape, S: Subject>(
    subject: &S,
    levels: u32,
    next: &mut u64,
    dress: &mut impl FnMut(&mut Node),
) -> Child {
    let number = *next;
    *next += 1;
    if levels == 0 {
        let mut leaf = make(subject, Node::leaf(number));
        // SAFETY: the leaf was just made, and is nobody else's yet.
        dress(unsafe { leaf.as_mut() });
        return leaf;
    }
    let node = H::inner(subject, number);
    // SAFETY: the node was just made.
    let children = unsafe { H::children(node) };
    for branch in 0..BRANCHES {
        let child = build_with::<H, S>(subject, levels - 1, next, dress);
        // SAFETY: the list has room for so many, and is nobody else's yet.
        unsafe { children.add(branch).write(child) };
    }
    node
}

/// What a walk has seen.
#[derive(Default)]
pub struct Seen {
    nodes: u64,
    wrong: u64,
}

impl Seen {
    /// Panics unless the walk met `expected` nodes, each with the content that it was given.
    pub fn check(&self, expected: u64) {
        assert_eq!(self.nodes, expected, "the walk met another number of nodes");
        assert_eq!(self.wrong, 0, "a node does not hold what was written");
    }
}

/// Walks a tree whose first node has the number `seen.nodes`, depth first.
///
/// # Safety
/// `node` is the root of a tree that `build` made in this shape and nobody changes meanwhile.
pub unsafe fn walk<H: Shape>(node: Child, seen: &mut Seen) {
    // SAFETY: the caller says that the node is live.
    let head = unsafe { node.as_ref() };
    seen.wrong |= head.number ^ seen.nodes;
    seen.nodes += 1;
    for branch in 0..head.branches as usize {
        // SAFETY: a node with branches is an inner node, and its children are trees of the same kind.
        unsafe { walk::<H>(H::children(node).add(branch).read(), seen) }
    }
}

/// Sets numbers anew, in walking order: after parts of the tree were built by themselves.
///
/// # Safety
/// As for [`walk`], and the tree is the caller's alone.
pub unsafe fn renumber<H: Shape>(mut node: Child, next: &mut u64) {
    // SAFETY: the caller says that the node is live and nobody else's; children as in `walk`.
    unsafe {
        let head = node.as_mut();
        head.number = *next;
        *next += 1;
        for branch in 0..head.branches as usize {
            renumber::<H>(H::children(node).add(branch).read(), next);
        }
    }
}

/// Frees a tree, children first, and returns how many nodes it had.
///
/// # Safety
/// As for [`walk`], `subject` made the tree, and nobody uses it any more.
pub unsafe fn destroy<H: Shape, S: Subject>(subject: &S, node: Child) -> u64 {
    // SAFETY: the caller's promises are the same.
    unsafe { destroy_with::<H, S>(subject, node, &mut |_| ()) }
}

/// As [`destroy`], and calls `strip` with each leaf before it is freed.
///
/// # Safety
/// As for [`destroy`].
pub unsafe fn destroy_with<H: Shape, S: Subject>(
    subject: &S,
    mut node: Child,
    strip: &mut impl FnMut(&mut Node),
) -> u64 {
    // SAFETY: the caller says that the node is live, the subject's, and its own; it is freed once, after its children.
    unsafe {
        let branches = node.as_ref().branches as usize;
        if branches == 0 {
            strip(node.as_mut());
            subject.free(Kind::Nodes, node.cast(), LEAF);
            return 1;
        }
        let children = H::children(node);
        let mut freed = 1;
        for branch in 0..branches {
            freed += destroy_with::<H, S>(subject, children.add(branch).read(), strip);
        }
        H::free_inner(subject, node);
        freed
    }
}

/// Calls `visit` with the place of each child that heads a subtree of `levels` levels.
///
/// # Safety
/// As for [`walk`]; `height` is the number of levels below `node`.
pub unsafe fn subtrees<H: Shape>(node: Child, height: u32, levels: u32, visit: &mut impl FnMut(NonNull<Child>)) {
    // SAFETY: the caller says that this is a live tree of this height; above its leaves, all nodes are inner ones.
    unsafe {
        for branch in 0..BRANCHES {
            let place = H::children(node).add(branch);
            if height == levels + 1 {
                visit(place);
            } else {
                subtrees::<H>(place.read(), height - 1, levels, visit);
            }
        }
    }
}
