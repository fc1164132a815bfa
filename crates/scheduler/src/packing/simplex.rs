//! A small revised simplex for covering problems: min c·x, A·x >= b, x >= 0, with columns that are added on the way.
//!
//! Its answers steer the search and are never trusted: the bound is computed from the duals alone (see
//! [`column_generation`](crate::packing::column_generation)), so that rounding here can cost quality, not
//! correctness.

use smallvec::SmallVec;

use crate::ids::{BinTypeIx, ColumnIx, MasterRowIx};
use crate::index_vec::IndexVec;

/// One column: its cost, and how much it covers of each row, or of what the rows are for.
#[derive(Clone, Debug)]
pub(crate) struct Column<R = MasterRowIx> {
    pub(crate) cost: f64,
    pub(crate) entries: SmallVec<[(R, f64); 4]>,
    /// Whose pattern it is, for the caller.
    pub(crate) bin_type: Option<BinTypeIx>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basic {
    Column(ColumnIx),
    Surplus(MasterRowIx),
}

/// The problem, its basis and the basic solution.
#[derive(Debug)]
pub(crate) struct Master {
    m: usize,
    pub(crate) columns: IndexVec<ColumnIx, Column>,
    basis: Vec<Basic>,
    /// Inverse of the basis, row by row.
    inverse: Vec<f64>,
    x: Vec<f64>,
    /// Dual price of each row.
    pub(crate) y: IndexVec<MasterRowIx, f64>,
}

const EPSILON: f64 = 1e-9;

#[expect(
    clippy::indexing_slicing,
    reason = "`inverse` has m times m entries, every other list m, by construction; rows are below m"
)]
impl Master {
    /// `start` has one column per row of `demand`, which covers that row alone. Then there is a row for each of `most`: the columns
    /// use it up by negative entries, and use no more than that.
    pub(crate) fn new(demand: &[f64], start: IndexVec<ColumnIx, Column>, most: &[f64]) -> Self {
        let m = demand.len() + most.len();
        let mut inverse = vec![0.0; m * m];
        let mut x = vec![0.0; m];
        let mut y = IndexVec::new();
        for (row, column) in start.iter().enumerate() {
            let covers = column.entries.first().map_or(1.0, |(_, a)| *a);
            inverse[row * m + row] = 1.0 / covers;
            x[row] = demand[row] / covers;
            y.push(column.cost / covers);
        }
        let mut basis: Vec<Basic> = start.ids().map(Basic::Column).collect();
        for (row, most) in (demand.len()..).zip(most) {
            // All of it is surplus at first: -use - surplus = -most.
            inverse[row * m + row] = -1.0;
            x[row] = *most;
            y.push(0.0);
            basis.push(Basic::Surplus(MasterRowIx::from(row)));
        }
        Self { m, columns: start, basis, inverse, x, y }
    }

    fn reduced(&self, column: &Column) -> f64 {
        column.cost - column.entries.iter().map(|(row, a)| self.y[*row] * a).sum::<f64>()
    }

    /// Pivots until no column improves the objective, or `most` times. Returns the work done.
    pub(crate) fn improve(&mut self, most: usize) -> u64 {
        let mut work = 0;
        for _ in 0..most {
            let mut best = (-EPSILON, None);
            for (at, column) in self.columns.enumerate() {
                // Relative to the cost, so that large instances don't crowd out small ones.
                let score = self.reduced(column) / column.cost.max(EPSILON);
                if score < best.0 {
                    best = (score, Some(Basic::Column(at)));
                }
            }
            let scale = 1.0 / self.y.iter().fold(EPSILON, |most, y| most.max(y.abs()));
            for (row, y) in self.y.enumerate() {
                if y * scale < best.0 {
                    best = (y * scale, Some(Basic::Surplus(row)));
                }
            }
            work += u64::try_from(self.columns.len() + self.m * self.m / 8).unwrap_or(0);
            let Some(entering) = best.1 else { break };
            if !self.pivot(entering) {
                break;
            }
        }
        work
    }

    fn pivot(&mut self, entering: Basic) -> bool {
        let m = self.m;
        let surplus;
        let (entries, reduced): (&[(MasterRowIx, f64)], f64) = match entering {
            Basic::Column(at) => (&self.columns[at].entries, self.reduced(&self.columns[at])),
            Basic::Surplus(row) => {
                surplus = [(row, -1.0)];
                (&surplus, self.y[row])
            }
        };
        let mut d = vec![0.0; m];
        for (row, a) in entries {
            let row = usize::from(*row);
            for (r, d) in d.iter_mut().enumerate() {
                *d += self.inverse[r * m + row] * a;
            }
        }
        let mut leaving: Option<(f64, f64, usize)> = None;
        for (r, (d, x)) in d.iter().zip(&self.x).enumerate() {
            if *d > 1e-7 {
                let ratio = x.max(0.0) / d;
                // Among equal ratios the largest pivot, for stability.
                let better = leaving.is_none_or(|(least, pivot, _)| {
                    ratio < least - 1e-12 || (ratio < least + 1e-12 && *d > pivot)
                });
                if better {
                    leaving = Some((ratio, *d, r));
                }
            }
        }
        let Some((ratio, pivot, r)) = leaving else { return false };
        for (i, x) in self.x.iter_mut().enumerate() {
            *x -= ratio * d[i];
        }
        self.x[r] = ratio;
        let old: Vec<f64> = self.inverse[r * m..(r + 1) * m].to_vec();
        for (y, o) in self.y.iter_mut().zip(&old) {
            *y += reduced / pivot * o;
        }
        for (i, d) in d.iter().enumerate() {
            if i != r && *d != 0.0 {
                let factor = d / pivot;
                for (v, o) in self.inverse[i * m..(i + 1) * m].iter_mut().zip(&old) {
                    *v -= factor * o;
                }
            }
        }
        for v in &mut self.inverse[r * m..(r + 1) * m] {
            *v /= pivot;
        }
        self.basis[r] = entering;
        true
    }

    /// Columns in the basis with their values.
    pub(crate) fn solution(&self) -> Vec<(ColumnIx, f64)> {
        let used = self.basis.iter().zip(&self.x);
        used.filter_map(|(b, x)| match b {
            Basic::Column(at) if *x > 1e-6 => Some((*at, *x)),
            _ => None,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(cost: f64, entries: &[(usize, f64)]) -> Column {
        let entries = entries.iter().map(|(row, a)| (MasterRowIx::from(*row), *a)).collect();
        Column { cost, entries, bin_type: None }
    }

    #[test]
    fn solves_a_covering_problem() {
        // Rolls of 10 into 4 x 3 and 3 x 4: patterns (3,0), (0,2), (2,1).
        let mut master = Master::new(
            &[4.0, 3.0],
            IndexVec::from(vec![column(1.0, &[(0, 3.0)]), column(1.0, &[(1, 2.0)])]),
            &[],
        );
        master.columns.push(column(1.0, &[(0, 2.0), (1, 1.0)]));
        master.improve(100);
        let value: f64 = master.solution().iter().map(|(c, x)| master.columns[*c].cost * x).sum();
        assert!((value - 2.5).abs() < 1e-9, "{value}");
        let dual = 4.0 * master.y[MasterRowIx::from(0)] + 3.0 * master.y[MasterRowIx::from(1)];
        assert!((dual - 2.5).abs() < 1e-9, "{dual}");
    }

    #[test]
    fn uses_no_more_of_a_row_than_there_is() {
        // Ten pods: at 1 on the first kind, of which three may be had, then at 2.
        let start = IndexVec::from(vec![column(100.0, &[(0, 1.0)])]);
        let mut master = Master::new(&[10.0], start, &[3.0]);
        master.columns.push(column(1.0, &[(0, 1.0), (1, -1.0)]));
        master.columns.push(column(2.0, &[(0, 1.0)]));
        master.improve(100);
        let value: f64 = master.solution().iter().map(|(c, x)| master.columns[*c].cost * x).sum();
        assert!((value - 17.0).abs() < 1e-9, "{value}");
        let y: Vec<f64> = master.y.iter().copied().collect();
        assert_eq!(y, [2.0, 1.0], "a pod is worth 2, one more of the first kind saves 1");
    }
}
