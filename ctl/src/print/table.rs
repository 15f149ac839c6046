//! `-w table`: a frame with columns, headers centred, cells to the right.

use super::Out;

/// Draws a table.
pub fn draw(out: &mut Out, headers: &[&str], rows: &[Vec<String>]) {
    let headers: Vec<String> = headers.iter().map(|h| h.to_uppercase()).collect();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|r| r.get(at)).chain(headers.get(at));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let rule = |left: &str, middle: &str, right: &str| {
        let dashes: Vec<String> = widths.iter().map(|w| "─".repeat(w + 2)).collect();
        format!("{left}{}{right}", dashes.join(middle))
    };
    out.line(rule("┌", "┬", "┐"));
    let centred: Vec<String> = headers.iter().zip(&widths).map(|(h, w)| format!(" {h:^w$} ")).collect();
    out.line(format!("│{}│", centred.join("│")));
    if !rows.is_empty() {
        out.line(rule("├", "┼", "┤"));
    }
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(c, w)| format!(" {c:>w$} ")).collect();
        out.line(format!("│{}│", cells.join("│")));
    }
    out.line(rule("└", "┴", "┘"));
}
