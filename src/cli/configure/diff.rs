//! The difference between two texts, as `patch` reads it.

/// The lines of context.
const AROUND: usize = 3;

/// Returns the lines that differ in one hunk, from the first change to the last.
pub fn diff(before: &str, after: &str) -> String {
    let [old, new] = [before, after].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old[same..].iter().rev().zip(new[same..].iter().rev());
    let tail = rest.take_while(|(a, b)| a == b).count();
    let start = same.saturating_sub(AROUND);
    let end = tail.saturating_sub(AROUND);
    // An empty range begins before its first line.
    let range = |count: usize| format!("{},{count}", if count == 0 { start } else { start + 1 });
    let (olds, news) = (old.len() - end - start, new.len() - end - start);
    let mut lines = format!("@@ -{} +{} @@\n", range(olds), range(news));
    let mut put = |sign: char, text: &[&str]| {
        for line in text {
            lines.push(sign);
            lines.push_str(line);
            if !line.ends_with('\n') {
                lines.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    put(' ', &old[start..same]);
    put('-', &old[same..old.len() - tail]);
    put('+', &new[same..new.len() - tail]);
    put(' ', &old[old.len() - tail..old.len() - end]);
    lines
}
