//! docs/packing.svg: for each fleet and load, what share of the memory asked for each policy gives.
//! Written by hand, so that it is the same bytes for the same figures.

use super::figures::Result;
use super::policy::Policy;
use super::workloads::{Fleet, Workloads};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
/// The width of one fleet's panel.
const PANEL: f64 = 320.0;
const LEGEND: f64 = 40.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 290.0;
const GROUP: f64 = 165.0;
const BAR: f64 = 22.0;

fn colour(policy: Policy) -> &'static str {
    match policy {
        Policy::FirstFit => "#bdbdbd",
        Policy::Driver => "#969696",
        Policy::BestFit => "#737373",
        Policy::Gradient => "#6baed6",
        Policy::Ours => "#d94801",
        Policy::Repack => "#e5e5e5",
    }
}

pub fn svg(workloads: &Workloads, results: &[Vec<Result>]) -> String {
    let panels = PANEL * results.len() as f64;
    let height = panels + LEGEND;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (n, (fleet, results)) in workloads.fleets.iter().zip(results).enumerate() {
        let top = PANEL * n as f64;
        let _ = writeln!(out, "<g transform=\"translate(0 {top})\">");
        panel(&mut out, fleet, &workloads.loads, results);
        out.push_str("</g>\n");
    }
    for (n, result) in results.iter().flatten().take(super::ALL.len()).enumerate() {
        let x = LEFT + (n % 3) as f64 * 230.0;
        let at = panels + 14.0 + (n / 3) as f64 * 16.0;
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{at:.1}\">{}</text>",
            at - 9.0,
            colour(result.policy),
            x + 15.0,
            result.policy.name()
        );
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, fleet: &Fleet, loads: &[f64], results: &[Result]) {
    let value = |result: &Result, load: usize| {
        let mixes = fleet.mixes.len();
        (0..mixes)
            .map(|mix| result.cell(mix, load).memory)
            .sum::<f64>()
            / mixes as f64
    };
    let all = results
        .iter()
        .flat_map(|r| (0..loads.len()).map(|l| value(r, l)));
    let least = (all.fold(100.0, f64::min) / 10.0).floor() * 10.0;
    let y = |percent: f64| BOTTOM - (percent - least) / (100.0 - least) * (BOTTOM - TOP);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"16\">memory accepted of the memory asked for, by offered load; \
         {}</text>",
        fleet.name()
    );
    let mut line = least;
    while line <= 100.0 {
        let at = y(line);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{line:.0} %</text>",
            LEFT - 6.0,
            at + 4.0
        );
        line += 10.0;
    }
    for (load, number) in loads.iter().enumerate() {
        let left = LEFT + 15.0 + load as f64 * GROUP;
        for (n, result) in results.iter().enumerate() {
            let (value, x) = (value(result, load), left + n as f64 * BAR);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"8\" text-anchor=\"middle\">{value:.1}</text>",
                y(value),
                BAR - 3.0,
                BOTTOM - y(value),
                colour(result.policy),
                x + BAR / 2.0 - 1.5,
                y(value) - 3.0
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">load {number:.1}</text>",
            left + BAR * results.len() as f64 / 2.0,
            BOTTOM + 16.0,
        );
    }
}
