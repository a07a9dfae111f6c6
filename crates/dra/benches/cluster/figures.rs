//! The figures of a cell, and the table.

use super::layouts::{LAYOUTS, Layout};
use std::fmt::Write;
use std::time::Duration;

/// The figures of a layout on some nodes.
pub struct Cell {
    pub layout: Layout,
    pub nodes: usize,
    /// From creation to binding, pods one by one.
    pub single: Vec<Duration>,
    /// Pods a second in a burst.
    pub burst: f64,
    /// The pods that were bound in a burst while the counters of every node change all the time.
    pub rewritten: usize,
    /// The scheduler's attempts without a node, while every pod finds room.
    pub refused: usize,
    /// From creation to binding, while others go.
    pub churned: Vec<Duration>,
    /// The scheduler's Filter, in ms a pod.
    pub filter: f64,
    /// The scheduler's attempts a pod.
    pub attempts: f64,
    /// Writes of ResourceSlices a pod.
    pub writes: f64,
    /// Resident memory of each part, in MB.
    pub resident: Vec<(&'static str, u64)>,
    /// Devices that were given out although their place was taken.
    pub overlaps: usize,
    /// Devices that were given out at the moment at which a local slice took their place. The driver moves such a promise.
    pub raced: usize,
    /// Pods that stayed pending although a node had room.
    pub pending_with_room: usize,
    /// Whether the time of the cell was over before its end.
    pub is_cut: bool,
}

impl Cell {
    /// Returns the number of faults. A layout without counters gives out places that overlap, by its nature.
    pub fn wrong(&self) -> usize {
        match self.layout {
            Layout::WithoutCounters => 0,
            _ => self.overlaps + self.pending_with_room + self.refused,
        }
    }

    pub fn line(&self) -> String {
        let parts: Vec<String> = { self.resident.iter() }
            .map(|(part, mb)| format!("{part} {mb} MB"))
            .collect();
        format!(
            "{} nodes, {}: {} ms p50, {} ms p99 one by one; {:.1} pods/s in a burst; {} ms p50 in churn; Filter {:.1} ms; \
             {:.2} attempts and {:.1} writes a pod; {} overlaps, {} pending with room, {} refused with room, {} bound while \
             counters change, {} of them beside a local slice; {}{}",
            self.nodes,
            self.layout.name(),
            percentile(&self.single, 50),
            percentile(&self.single, 99),
            self.burst,
            percentile(&self.churned, 50),
            self.filter,
            self.attempts,
            self.writes,
            self.overlaps,
            self.pending_with_room,
            self.refused,
            self.rewritten,
            self.raced,
            parts.join(", "),
            if self.is_cut {
                "; cut after a minute"
            } else {
                ""
            },
        )
    }
}

fn percentile(times: &[Duration], percent: usize) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = times.len().saturating_sub(1) * percent / 100;
    times.get(at).map_or("–".to_owned(), |time| {
        format!("{:.0}", time.as_secs_f64() * 1e3)
    })
}

/// Returns the table in Markdown: a row for each layout, a column for each number of nodes.
pub fn table(cells: &[Cell]) -> String {
    let mut counts: Vec<usize> = cells.iter().map(|cell| cell.nodes).collect();
    counts.dedup();
    let mut out = String::from("| layout |");
    for count in &counts {
        write!(out, " {count} nodes |").expect("a text");
    }
    out.push_str("\n| --- |");
    out.push_str(&" --- |".repeat(counts.len()));
    out.push('\n');
    for layout in LAYOUTS {
        write!(out, "| {} |", layout.name()).expect("a text");
        for count in &counts {
            let cell = cells
                .iter()
                .find(|cell| cell.layout == layout && cell.nodes == *count);
            match cell {
                Some(cell) => write!(
                    out,
                    " {} / {:.1} / {}{} |",
                    percentile(&cell.single, 50),
                    cell.burst,
                    percentile(&cell.churned, 50),
                    if cell.is_cut { " (cut)" } else { "" },
                ),
                None => write!(out, " – |"),
            }
            .expect("a text");
        }
        out.push('\n');
    }
    let ours = cells.iter().filter(|cell| cell.layout == Layout::Ours);
    let writes: Vec<String> = ours
        .map(|cell| format!("{:.1} at {} nodes", cell.writes, cell.nodes))
        .collect();
    writeln!(
        out,
        "\nCells are ms from creation to binding in the median one by one, pods a second in a burst of 50, and ms in the \
         median while pods go on nodes filled to 70 and 90 %. runmig-dra wrote ResourceSlices a pod: {}.",
        writes.join(", ")
    )
    .expect("a text");
    out
}
