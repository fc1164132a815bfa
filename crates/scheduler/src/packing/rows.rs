//! Equally long rows of amounts, one after the other in memory.

use std::{
    marker::PhantomData,
    ops::{Index, IndexMut},
};

/// A list of rows by id. One allocation holds them all: the searches read them in every step.
#[derive(Clone, Debug)]
pub(crate) struct Rows<I> {
    width: usize,
    amounts: Vec<i64>,
    count: usize,
    id: PhantomData<I>,
}

impl<I: From<usize> + Into<usize>> Rows<I> {
    /// No rows, of `width` amounts each.
    pub(crate) fn new(width: usize) -> Self {
        Self { width, amounts: Vec::new(), count: 0, id: PhantomData }
    }

    /// Adds a row, cut or filled up with zeroes to the width of all.
    pub(crate) fn push(&mut self, row: &[i64]) -> I {
        let end = self.amounts.len() + self.width;
        self.amounts.extend_from_slice(row.get(..self.width).unwrap_or(row));
        self.amounts.resize(end, 0);
        self.count += 1;
        I::from(self.count - 1)
    }

    /// Removes the last row.
    pub(crate) fn pop(&mut self) {
        self.count = self.count.saturating_sub(1);
        self.amounts.truncate(self.count * self.width);
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.amounts.clear();
    }
}

/// True if `row` has at least as much of everything as `other`. Without `zip`: its constructor isn't inlined here, and costs
/// more than comparing such short rows.
pub(crate) fn covers(row: &[i64], other: &[i64]) -> bool {
    let mut other = other.iter();
    row.iter().all(|amount| other.next().is_none_or(|least| amount >= least))
}

#[expect(clippy::indexing_slicing, reason = "every row has `width` amounts, by construction")]
impl<I: Into<usize>> Index<I> for Rows<I> {
    type Output = [i64];

    #[inline]
    fn index(&self, row: I) -> &[i64] {
        let from = row.into() * self.width;
        &self.amounts[from..from + self.width]
    }
}

#[expect(clippy::indexing_slicing, reason = "every row has `width` amounts, by construction")]
impl<I: Into<usize>> IndexMut<I> for Rows<I> {
    #[inline]
    fn index_mut(&mut self, row: I) -> &mut [i64] {
        let from = row.into() * self.width;
        &mut self.amounts[from..from + self.width]
    }
}
