//! A list with holes: members keep their index, and indices are used again.
//! What a member has taken goes with it, but for a word.

use std::ops::{Index, IndexMut};

/// An index into one kind of list, so that a tube's cannot be taken for a
/// connection's.
pub trait SlabIndex: Copy {
    fn from_u32(index: u32) -> Self;
    fn as_usize(self) -> usize;
}

/// Where a tube is among those that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TubeIndex(pub u32);

/// Where a connection is among those that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionIndex(pub u32);

impl SlabIndex for TubeIndex {
    fn from_u32(index: u32) -> TubeIndex {
        TubeIndex(index)
    }

    fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl SlabIndex for ConnectionIndex {
    fn from_u32(index: u32) -> ConnectionIndex {
        ConnectionIndex(index)
    }

    fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// Members by their indices.
pub struct Slab<I, T> {
    members: Vec<Option<Box<T>>>,
    free: Vec<I>,
}

impl<I: SlabIndex, T> Slab<I, T> {
    pub fn new() -> Slab<I, T> {
        Slab {
            members: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds what `make` makes for the index that it is told.
    pub fn insert_with(&mut self, make: impl FnOnce(I) -> T) -> I {
        let index = self.free.pop().unwrap_or_else(|| {
            self.members.push(None);
            let last = u32::try_from(self.members.len() - 1);
            I::from_u32(last.expect("fewer than 2^32 members"))
        });
        self.members[index.as_usize()] = Some(Box::new(make(index)));
        index
    }

    pub fn get(&self, index: I) -> Option<&T> {
        self.members.get(index.as_usize())?.as_deref()
    }

    pub fn remove(&mut self, index: I) -> Option<T> {
        let member = self.members.get_mut(index.as_usize())?.take()?;
        self.free.push(index);
        Some(*member)
    }

    pub fn len(&self) -> usize {
        self.members.len() - self.free.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.members.iter().flatten().map(|member| &**member)
    }
}

/// For indices known to have a member.
impl<I: SlabIndex, T> Index<I> for Slab<I, T> {
    type Output = T;

    fn index(&self, index: I) -> &T {
        self.get(index).expect("the index has a member")
    }
}

impl<I: SlabIndex, T> IndexMut<I> for Slab<I, T> {
    fn index_mut(&mut self, index: I) -> &mut T {
        let member = self.members[index.as_usize()].as_deref_mut();
        member.expect("the index has a member")
    }
}
