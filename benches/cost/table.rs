//! Columns: the first to the left, numbers to the right.

pub fn print(head: &[&str], rows: &[Vec<String>]) {
    let head: Vec<String> = head.iter().map(|&text| text.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in all {
        let mut line = format!("{:1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        println!("{}", line.trim_end());
    }
}
