//! A list with holes: members keep their index, and free indices are used
//! again. A removed member leaves only a word of memory behind.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfConnections;

/// Members by their indices.
pub struct Slab<Kind, T> {
    members: Vec<Option<Box<T>>>,
    free: Vec<Index<Kind>>,
}

impl<Kind: Copy, T> Slab<Kind, T> {
    pub fn new() -> Slab<Kind, T> {
        Slab {
            members: Vec::new(),
            free: Vec::new(),
        }
    }

    pub fn insert(&mut self, member: T) -> Index<Kind> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.members.push(None);
            let last = u32::try_from(self.members.len() - 1);
            Index::new(last.expect("fewer than 2^32 members"))
        });
        self.members[index.0 as usize] = Some(Box::new(member));
        index
    }

    pub fn get(&self, index: Index<Kind>) -> Option<&T> {
        self.members.get(index.0 as usize)?.as_deref()
    }

    pub fn remove(&mut self, index: Index<Kind>) -> Option<T> {
        let member = self.members.get_mut(index.0 as usize)?.take()?;
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

/// Panics if the index has no member.
impl<Kind: Copy, T> ops::Index<Index<Kind>> for Slab<Kind, T> {
    type Output = T;

    fn index(&self, index: Index<Kind>) -> &T {
        self.get(index).expect("the index has a member")
    }
}

impl<Kind: Copy, T> ops::IndexMut<Index<Kind>> for Slab<Kind, T> {
    fn index_mut(&mut self, index: Index<Kind>) -> &mut T {
        let member = self.members[index.0 as usize].as_deref_mut();
        member.expect("the index has a member")
    }
}
