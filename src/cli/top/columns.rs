//! The columns of the leases, and those that a narrow terminal leaves out.

use clap::ValueEnum;

/// A column of the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    Holder,
    Kind,
    Profile,
    Gpu,
    Place,
    State,
    Age,
    Used,
    Procs,
}

/// The columns in the order in which a narrow terminal leaves them out. The holder stays.
const LEAVING: [Column; 8] = [
    Column::Place,
    Column::Kind,
    Column::Procs,
    Column::Age,
    Column::Used,
    Column::Gpu,
    Column::State,
    Column::Profile,
];
/// The width below which the name of a holder tells too little.
const SHORTEST_NAME: usize = 12;
/// The space between two columns.
pub const GAP: usize = 2;

impl Column {
    /// All columns, in the order of the table.
    pub const ALL: [Column; 9] = [
        Column::Holder,
        Column::Kind,
        Column::Profile,
        Column::Gpu,
        Column::Place,
        Column::State,
        Column::Age,
        Column::Used,
        Column::Procs,
    ];

    /// Returns the heading.
    pub fn head(self) -> &'static str {
        match self {
            Column::Holder => "HOLDER",
            Column::Kind => "KIND",
            Column::Profile => "PROFILE",
            Column::Gpu => "GPU",
            Column::Place => "PLACE",
            Column::State => "STATE",
            Column::Age => "AGE",
            Column::Used => "USED",
            Column::Procs => "PROCS",
        }
    }

    /// Returns the column that comes so many later, around the end.
    pub fn plus(self, by: usize) -> Column {
        let at = Column::ALL.iter().position(|column| *column == self);
        Column::ALL[(at.unwrap_or_default() + by) % Column::ALL.len()]
    }
}

/// Returns the columns that fit, with their widths. Names of holders give way first, then whole columns.
pub fn fit(wanted: [usize; 9], available: usize) -> Vec<(Column, usize)> {
    let mut kept: Vec<(Column, usize)> = Column::ALL.into_iter().zip(wanted).collect();
    for leaving in LEAVING.map(Some).into_iter().chain([None]) {
        let widths: usize = kept.iter().map(|(_, width)| width).sum();
        let over = (widths + GAP * (kept.len() - 1)).saturating_sub(available);
        let (_, name) = kept[0];
        if name.saturating_sub(over) >= name.min(SHORTEST_NAME) {
            kept[0].1 = name - over;
            break;
        }
        match leaving {
            Some(leaving) => kept.retain(|(column, _)| *column != leaving),
            None => kept[0].1 = available,
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: [usize; 9] = [30, 5, 12, 3, 5, 8, 3, 7, 5];

    #[test]
    fn shortens_names_then_drops_columns() {
        assert_eq!(fit(WANTED, 200).len(), 9);
        assert_eq!(fit(WANTED, 200)[0], (Column::Holder, 30));
        let narrow = fit(WANTED, 80);
        assert_eq!((narrow.len(), narrow[0].1), (9, 16));
        let narrower = fit(WANTED, 60);
        assert!(narrower.iter().all(|(column, _)| *column != Column::Place));
        assert!(narrower.iter().any(|(column, _)| *column == Column::Used));
        assert_eq!(fit(WANTED, 1), [(Column::Holder, 1)]);
    }

    #[test]
    fn never_wider_than_terminal() {
        for available in 0..120 {
            let kept = fit(WANTED, available);
            let widths: usize = kept.iter().map(|(_, width)| width).sum();
            assert!(
                widths + GAP * (kept.len() - 1) <= available,
                "{available}: {kept:?}"
            );
        }
    }
}
