//! `-w table`: a frame with columns, headers centred, cells to the right. On a
//! terminal that is too narrow for it, a block of lines for each row.

use super::{
    Out,
    look::{Look, Paint, tame},
};

/// A cell, and what its colour says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// What stands in it.
    pub text: String,
    /// Without one it is like the rest.
    pub paint: Option<Paint>,
}

impl Cell {
    /// A cell that is painted if this is so.
    pub fn painted(text: impl Into<String>, paint: Paint, if_so: bool) -> Cell {
        Cell { text: text.into(), paint: if_so.then_some(paint) }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, paint: None }
    }
}

/// Draws a table.
pub fn draw(out: &mut Out, headers: &[&str], rows: &[Vec<String>]) {
    let cells: Vec<Vec<Cell>> = rows.iter().map(|row| row.iter().cloned().map(Cell::from).collect()).collect();
    draw_cells(out, headers, &cells);
}

/// Draws a table with colours.
pub fn draw_cells(out: &mut Out, headers: &[&str], rows: &[Vec<Cell>]) {
    let headers: Vec<String> = headers.iter().map(|h| h.to_uppercase()).collect();
    let tamed: Vec<Vec<Cell>>;
    let rows = if out.look.is_seen() {
        let tamed_cell = |cell: &Cell| Cell { text: tame(&cell.text), paint: cell.paint };
        tamed = rows.iter().map(|row| row.iter().map(tamed_cell).collect()).collect();
        &tamed[..]
    } else {
        rows
    };
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|r| r.get(at)).map(Cell::width);
        cells.chain(headers.get(at).map(|h| h.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let whole = widths.iter().map(|width| width + 3).sum::<usize>() + 1;
    match out.look.columns {
        Some(columns) if whole > columns && !rows.is_empty() => blocks(out, &headers, rows),
        _ => frame(out, &headers, rows, &widths),
    }
}

fn frame(out: &mut Out, headers: &[String], rows: &[Vec<Cell>], widths: &[usize]) {
    let look = out.look;
    let rule = |left: &str, middle: &str, right: &str| {
        let dashes: Vec<String> = widths.iter().map(|w| "─".repeat(w + 2)).collect();
        format!("{left}{}{right}", dashes.join(middle))
    };
    out.line(rule("┌", "┬", "┐"));
    let centred: Vec<String> =
        headers.iter().zip(widths).map(|(h, w)| look.paint(Paint::Head, &format!(" {h:^w$} "))).collect();
    out.line(format!("│{}│", centred.join("│")));
    if !rows.is_empty() {
        out.line(rule("├", "┼", "┤"));
    }
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| right(look, cell, *width)).collect();
        out.line(format!("│{}│", cells.join("│")));
    }
    out.line(rule("└", "┴", "┘"));
}

/// A cell at the right of its column; the blanks have no colour.
fn right(look: Look, cell: &Cell, width: usize) -> String {
    format!(" {}{} ", " ".repeat(width.saturating_sub(cell.width())), look.paint(cell.paint, &cell.text))
}

fn blocks(out: &mut Out, headers: &[String], rows: &[Vec<Cell>]) {
    let look = out.look;
    let width = headers.iter().map(|h| h.chars().count()).max().unwrap_or(0);
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            out.line("");
        }
        for (header, cell) in headers.iter().zip(row).filter(|(_, cell)| !cell.text.is_empty()) {
            let head = look.paint(Paint::Head, &format!("{header:<width$}"));
            out.line(format!("{head}  {}", look.paint(cell.paint, &cell.text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(look: Look) -> String {
        let mut out = Out { look, ..Out::default() };
        let bad = Cell::painted("no\x1b[2J", Paint::Bad, true);
        draw_cells(
            &mut out,
            &["name", "well"],
            &[vec!["m1".to_owned().into(), bad], vec!["member".to_owned().into(), Cell::default()]],
        );
        String::from_utf8(out.bytes).expect("text")
    }

    #[test]
    fn where_nobody_looks_it_is_the_stock_tool_s() {
        let expected = "\
┌────────┬────────┐
│  NAME  │  WELL  │
├────────┼────────┤
│     m1 │ no\x1b[2J │
│ member │        │
└────────┴────────┘
";
        assert_eq!(drawn(Look::default()), expected);
    }

    #[test]
    fn colours_do_not_widen_columns_and_nothing_commands_the_terminal() {
        let expected = "\
┌────────┬────────┐
│\x1b[1m  NAME  \x1b[0m│\x1b[1m  WELL  \x1b[0m│
├────────┼────────┤
│     m1 │ \x1b[1;31mno\u{fffd}[2J\x1b[0m │
│ member │        │
└────────┴────────┘
";
        assert_eq!(drawn(Look { ours: true, columns: Some(40), color: true }), expected);
    }

    #[test]
    fn a_narrow_terminal_has_a_block_for_each_row() {
        let expected = "NAME  m1\nWELL  no\u{fffd}[2J\n\nNAME  member\n";
        assert_eq!(drawn(Look { ours: true, columns: Some(10), color: false }), expected);
    }
}
