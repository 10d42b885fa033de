//! A list with holes: members keep their index, and free indices are used
//! again, the smallest first, so that the end of the list becomes free and can
//! be trimmed.
//!
//! An ordered map would do the same and take as much memory. But every command
//! looks up its connection and its tube several times, and a reserve looks up
//! each tube that is watched. Here that is an index and no search, which makes
//! commands of many clients, and a reserve that watches many tubes, much
//! faster.

use super::SLICE;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops;

/// An index into one kind of list: the index of a tube and that of a connection
/// are different types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index<Kind>(pub u32, PhantomData<Kind>);

impl<Kind> Index<Kind> {
    pub const fn new(index: u32) -> Index<Kind> {
        Index(index, PhantomData)
    }
}

/// Where a tube is among those that exist.
pub type TubeIndex = Index<OfTubes>;
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfTubes;

/// Where a connection is among those that are open.
pub type ConnectionIndex = Index<OfConnections>;
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfConnections;

/// Members by their indices, and by their numbers, of which none is given twice.
#[derive(Default)]
pub struct Slab<Kind, T> {
    members: Vec<Option<Box<T>>>,
    free: BTreeSet<Index<Kind>>,
    by_id: BTreeMap<u64, Index<Kind>>,
}

impl<Kind: Copy + Ord, T> Slab<Kind, T> {
    pub fn insert(&mut self, id: u64, member: T) -> Index<Kind> {
        self.trim();
        let index = self.free.pop_first().unwrap_or_else(|| {
            self.members.push(None);
            let last = u32::try_from(self.members.len() - 1);
            Index::new(last.expect("fewer than 2^32 members"))
        });
        self.members[index.0 as usize] = Some(Box::new(member));
        self.by_id.insert(id, index);
        index
    }

    /// The index of the member with this number.
    pub fn find(&self, id: u64) -> Option<Index<Kind>> {
        self.by_id.get(&id).copied()
    }

    /// The members with this number or a higher one, in their order.
    pub fn from(&self, id: u64) -> impl Iterator<Item = (u64, &T)> {
        let members = self.by_id.range(id..);
        members.map(|(&id, &index)| (id, &self[index]))
    }

    pub fn get(&self, index: Index<Kind>) -> Option<&T> {
        self.members.get(index.0 as usize)?.as_deref()
    }

    pub fn remove(&mut self, id: u64) -> Option<Box<T>> {
        let index = self.by_id.remove(&id)?;
        let member = self.members[index.0 as usize].take()?;
        self.free.insert(index);
        self.trim();
        Some(member)
    }

    /// Frees the holes at the end, a time slice at a time.
    fn trim(&mut self) {
        for _ in 0..SLICE {
            let Some(None) = self.members.last() else {
                break;
            };
            self.members.pop();
            self.free.pop_last();
        }
        if self.members.len() * 4 < self.members.capacity() {
            self.members.shrink_to(self.members.len() * 2);
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}

/// Panics if the index has no member.
impl<Kind: Copy + Ord, T> ops::Index<Index<Kind>> for Slab<Kind, T> {
    type Output = T;

    fn index(&self, index: Index<Kind>) -> &T {
        self.get(index).expect("the index has a member")
    }
}

impl<Kind: Copy + Ord, T> ops::IndexMut<Index<Kind>> for Slab<Kind, T> {
    fn index_mut(&mut self, index: Index<Kind>) -> &mut T {
        let member = self.members[index.0 as usize].as_deref_mut();
        member.expect("the index has a member")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_index_is_used_again_and_an_empty_slab_keeps_no_memory() {
        let mut slab = Slab::<OfTubes, u32>::default();
        let indices: Vec<TubeIndex> = (0..900).map(|n| slab.insert(n.into(), n)).collect();
        assert_eq!(slab.remove(7), Some(Box::new(7)));
        assert_eq!(slab.remove(3), Some(Box::new(3)));
        assert!(slab.get(indices[3]).is_none());
        assert_eq!(
            [slab.insert(1003, 1003), slab.insert(1007, 1007)],
            [indices[3], indices[7]]
        );
        assert_eq!((slab.len(), slab[indices[7]]), (900, 1007));
        let ids: Vec<u64> = slab.from(898).map(|(id, _)| id).collect();
        assert_eq!(ids, [898, 899, 1003, 1007]);
        // The last one goes last.
        for id in slab.from(0).map(|(id, _)| id).collect::<Vec<_>>() {
            assert!(slab.remove(id).is_some() && slab.find(id).is_none());
        }
        assert_eq!(slab.len(), 0);
        assert!(slab.members.is_empty() && slab.free.is_empty());
        assert!(slab.members.capacity() < 16, "{}", slab.members.capacity());
    }
}
