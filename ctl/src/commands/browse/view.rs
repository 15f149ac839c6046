//! The screen: pure, so that it can be tested without one. It says what it
//! wants to have read ([`Browser::wants`]) and takes what came
//! ([`Browser::take`]).

mod place;

use client::{
    Error,
    wire::{
        etcdserverpb::{RangeRequest, RangeResponse},
        mvccpb::KeyValue,
    },
};
use ratatui::{
    Frame,
    crossterm::event::KeyCode,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Borders, Paragraph, Row as Cells, Table, Wrap},
};

use self::place::Place;
use super::{
    level::{self, PAGE, Row},
    plan::{Plan, is_compacted},
    show::{self, Shown},
};
use crate::{commands::admin::gofmt, exit::error_text};

/// Rows of one level that are kept; who has more begins further down.
const ROWS_MAX: usize = 100_000;
/// Rows that are read ahead of what is seen.
const AHEAD: usize = 50;
/// Requests on the way at once.
const AT_ONCE: usize = 4;
/// Bytes of a name that are shown: keys can be as long as a request.
const NAME_MAX: usize = 512;
/// A narrower screen has no room for a value beside the names.
const WIDE: u16 = 70;

/// A request, and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// An answer to an ask of an earlier life is no longer wanted.
    pub life: u64,
    /// What it is for.
    pub about: About,
    /// The request.
    pub request: RangeRequest,
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// More rows of the level.
    Rows,
    /// How many keys there are below a branch.
    Count(Vec<u8>),
    /// A key with its value.
    Value(Vec<u8>),
}

/// What is shown, and how.
#[derive(Debug)]
pub struct Browser {
    plan: Plan,
    life: u64,
    /// Of all reads; 0 until the first has answered.
    revision: i64,
    /// The levels above, as they were left.
    above: Vec<Place>,
    here: Place,
    on_the_way: Vec<About>,
    /// Why nothing more is read until the person says so.
    trouble: Option<String>,
    /// Whether the keys go into the filter.
    typing: bool,
    value: Option<Value>,
    /// Whether the value has the whole screen.
    alone: bool,
    hex: bool,
    /// First line of the value that is shown.
    scroll: usize,
    /// Lines for the value, as last drawn.
    height: usize,
}

/// A value that was read.
#[derive(Debug)]
struct Value {
    key: Vec<u8>,
    /// None if there is no such key at this revision.
    kv: Option<KeyValue>,
    shown: Shown,
}

impl Browser {
    /// At the beginning, with nothing read.
    pub fn new(plan: Plan) -> Browser {
        Browser {
            here: Place::new(&plan.prefix, &plan.separator),
            plan,
            life: 0,
            revision: 0,
            above: Vec::new(),
            on_the_way: Vec::new(),
            trouble: None,
            typing: false,
            value: None,
            alone: false,
            hex: false,
            scroll: 0,
            height: 1,
        }
    }

    /// What is to be read next; none while enough is on the way.
    pub fn wants(&mut self) -> Option<Ask> {
        if self.trouble.is_some() || self.on_the_way.len() >= AT_ONCE {
            return None;
        }
        let (about, request) = self.rows_wanted().or_else(|| self.value_wanted()).or_else(|| self.count_wanted())?;
        self.on_the_way.push(about.clone());
        Some(Ask { life: self.life, about, request: self.plan.consistent(request) })
    }

    fn rows_wanted(&self) -> Option<(About, RangeRequest)> {
        if self.on_the_way.contains(&About::Rows) || !self.here.wants_rows(AHEAD) || self.is_full() {
            return None;
        }
        Some((About::Rows, self.here.level.request(PAGE, self.revision)?))
    }

    fn value_wanted(&self) -> Option<(About, RangeRequest)> {
        let row = self.here.chosen().filter(|row| !row.branch && self.revision > 0)?;
        let on_the_way = self.on_the_way.iter().any(|about| matches!(about, About::Value(_)));
        if on_the_way || self.value.as_ref().is_some_and(|value| value.key == row.key) {
            return None;
        }
        Some((About::Value(row.key.clone()), self.plan.value(&row.key, self.revision)))
    }

    fn count_wanted(&self) -> Option<(About, RangeRequest)> {
        let wanted = |key: &&[u8]| !self.on_the_way.iter().any(|about| *about == About::Count(key.to_vec()));
        let key = self.here.uncounted().find(wanted).filter(|_| self.revision > 0)?;
        Some((About::Count(key.to_vec()), self.plan.count(key, self.revision)))
    }

    fn is_full(&self) -> bool {
        self.here.rows() >= ROWS_MAX
    }

    /// Takes an answer.
    pub fn take(&mut self, life: u64, about: About, answer: Result<RangeResponse, Error>) {
        if life != self.life {
            return;
        }
        self.on_the_way.retain(|other| *other != about);
        let response = match answer {
            Ok(response) => response,
            Err(error) => return self.complain(&error),
        };
        if self.revision == 0 {
            self.revision = response.header.as_ref().map_or(0, |header| header.revision);
        }
        match about {
            About::Rows => self.here.take(&response),
            About::Count(key) => self.here.counted(&key, u64::try_from(response.count).unwrap_or(0)),
            About::Value(key) => {
                let kv = response.kvs.into_iter().next();
                let shown = kv.as_ref().map_or_else(Shown::default, |kv| show::value(&kv.value, self.hex));
                self.value = Some(Value { key, kv, shown });
                self.scroll = 0;
            }
        }
    }

    fn complain(&mut self, error: &Error) {
        self.trouble = Some(match is_compacted(error) {
            true => format!("revision {} has been compacted away: press r to read the newest", self.revision),
            false => format!("{}: press r to read again", error_text(error)),
        });
    }

    /// A key was pressed; `false` if it ends the program.
    pub fn key(&mut self, key: KeyCode) -> bool {
        if self.typing {
            self.type_filter(key);
            return true;
        }
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Char('r') => self.reload(),
            KeyCode::Char('x') => self.turn_hex(),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.open(),
            KeyCode::Backspace | KeyCode::Left | KeyCode::Char('h') => self.close(),
            KeyCode::Esc if self.alone => self.alone = false,
            KeyCode::Esc => self.here.filter_by(""),
            KeyCode::Char('/') if !self.alone => self.typing = true,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-self.page()),
            KeyCode::PageDown | KeyCode::Char(' ') => self.step(self.page()),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX),
            _ => {}
        }
        true
    }

    fn type_filter(&mut self, key: KeyCode) {
        let mut filter = self.here.filter().to_owned();
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                filter.clear();
            }
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char(c) => filter.push(c),
            KeyCode::Up => self.here.step(-1),
            KeyCode::Down => self.here.step(1),
            _ => {}
        }
        self.here.filter_by(&filter);
    }

    fn page(&self) -> isize {
        isize::try_from(self.height).unwrap_or(isize::MAX).max(1)
    }

    fn step(&mut self, by: isize) {
        if self.alone {
            let last = self.value.as_ref().map_or(0, |value| value.shown.lines.len().saturating_sub(1));
            self.scroll = self.scroll.saturating_add_signed(by).min(last);
        } else {
            self.here.step(by);
        }
    }

    fn turn_hex(&mut self) {
        self.hex = !self.hex;
        if let Some(Value { kv: Some(kv), shown, .. }) = &mut self.value {
            *shown = show::value(&kv.value, self.hex);
        }
        self.scroll = 0;
    }

    fn open(&mut self) {
        match self.here.chosen().cloned() {
            Some(Row { key, branch: true }) => {
                let below = Place::new(&key, &self.plan.separator);
                self.above.push(std::mem::replace(&mut self.here, below));
                self.leave();
            }
            Some(_) => self.alone = true,
            None => {}
        }
    }

    /// Away from the value, or one level up.
    fn close(&mut self) {
        if self.alone {
            self.alone = false;
            return;
        }
        let up = self.above.pop().or_else(|| {
            let prefix = level::parent(self.here.prefix(), &self.plan.separator)?;
            let mut up = Place::new(&prefix, &self.plan.separator);
            up.seek(self.here.prefix());
            Some(up)
        });
        if let Some(up) = up {
            self.here = up;
            self.leave();
        }
    }

    /// The same level at the newest revision.
    fn reload(&mut self) {
        let mut fresh = Place::new(self.here.prefix(), &self.plan.separator);
        fresh.filter_by(self.here.filter());
        if let Some(row) = self.here.chosen() {
            fresh.seek(&row.key);
        }
        self.here = fresh;
        self.above.clear();
        self.revision = 0;
        self.value = None;
        self.leave();
    }

    /// What is on the way is for another level.
    fn leave(&mut self) {
        self.life += 1;
        self.on_the_way.clear();
        self.trouble = None;
        self.typing = false;
        self.scroll = 0;
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(self.headline(), bold), head);
        self.height = usize::from(body.height);
        if self.alone {
            self.draw_value(frame, body, Borders::NONE);
        } else if body.width < WIDE {
            self.draw_rows(frame, body);
        } else {
            let [names, value] = Layout::horizontal([Constraint::Percentage(40), Constraint::Min(0)]).areas(body);
            self.draw_rows(frame, names);
            self.draw_value(frame, value, Borders::LEFT);
        }
        frame.render_widget(Line::from(self.footline()), foot);
    }

    fn headline(&self) -> String {
        let prefix = self.here.prefix();
        let place = match (self.alone, self.here.chosen()) {
            (true, Some(row)) => name(&row.key),
            _ if prefix.is_empty() => "all keys".to_owned(),
            _ => name(prefix),
        };
        let rows = match (self.here.level.is_whole(), self.is_full(), self.here.rows()) {
            (true, _, 1) => "1 row".to_owned(),
            (true, _, rows) => format!("{rows} rows"),
            (false, true, rows) => format!("the first {rows} rows: begin further down to see others"),
            (false, false, rows) => format!("{rows} rows and more"),
        };
        match self.revision {
            0 => format!("{place}  reading…"),
            revision => format!("{place}  {rows}  revision {revision}"),
        }
    }

    fn footline(&self) -> String {
        let filter = self.here.filter();
        if let Some(trouble) = &self.trouble {
            trouble.clone()
        } else if self.typing {
            format!("filter: {filter}_  {} found  (Enter keeps it, Esc drops it)", self.here.found())
        } else if self.alone {
            "q quit  Backspace back  x bytes  r reload".to_owned()
        } else if !filter.is_empty() {
            format!("filter: {filter}  {} found  (Esc drops it)", self.here.found())
        } else {
            "q quit  Enter open  Backspace up  / filter  x bytes  r reload".to_owned()
        }
    }

    fn draw_rows(&mut self, frame: &mut Frame, area: Rect) {
        let stem = self.here.level.stem();
        let (chosen, rows) = self.here.seen(usize::from(area.height));
        let none = rows.len() == 0;
        let cells = rows.enumerate().map(|(at, (row, count))| {
            let count = match (row.branch, count) {
                (false, _) => String::new(),
                (true, None) => "…".to_owned(),
                (true, Some(count)) => count.to_string(),
            };
            let cells = Cells::new([Line::from(name(&row.key[stem..])), Line::from(count).right_aligned()]);
            if at == chosen { cells.style(Style::new().add_modifier(Modifier::REVERSED)) } else { cells }
        });
        let table = Table::new(cells, [Constraint::Min(0), Constraint::Length(10)]);
        frame.render_widget(table, area);
        if none && self.here.level.is_whole() {
            let text = if self.here.filter().is_empty() { "no keys here" } else { "no name has this in it" };
            frame.render_widget(Line::from(text), Rect { height: area.height.min(1), ..area });
        }
    }

    fn draw_value(&self, frame: &mut Frame, area: Rect, borders: Borders) {
        let lines = match self.here.chosen() {
            None => Vec::new(),
            Some(row) if row.branch => vec![self.about_branch(row)],
            Some(row) => self.about_key(row, usize::from(area.height)),
        };
        let lines: Vec<Line> = lines.into_iter().map(Line::from).collect();
        let page = Paragraph::new(lines).block(Block::new().borders(borders));
        // Beside the names there is no room for whole lines of a dump.
        let clipped = !self.alone && self.value.as_ref().is_some_and(|value| value.shown.dumped);
        frame.render_widget(if clipped { page } else { page.wrap(Wrap { trim: false }) }, area);
    }

    fn about_branch(&self, row: &Row) -> String {
        match self.here.count(&row.key) {
            None => "counting…".to_owned(),
            Some(1) => "1 key begins like this".to_owned(),
            Some(count) => format!("{count} keys begin like this"),
        }
    }

    fn about_key(&self, row: &Row, height: usize) -> Vec<String> {
        let Some(value) = self.value.as_ref().filter(|value| value.key == row.key) else {
            return vec!["reading…".to_owned()];
        };
        let Some(kv) = &value.kv else { return vec!["no such key at this revision".to_owned()] };
        let lease = if kv.lease == 0 { String::new() } else { format!("  lease {:x}", kv.lease) };
        let size = gofmt::size(kv.value.len() as u64);
        let head = [
            format!("{}, {size}{lease}", value.shown.what),
            format!("created {}  changed {}  version {}", kv.create_revision, kv.mod_revision, kv.version),
            String::new(),
        ];
        let lines = value.shown.lines.iter().skip(self.scroll).take(height);
        head.into_iter().chain(lines.cloned()).collect()
    }
}

/// As much of a name as a screen needs.
fn name(bytes: &[u8]) -> String {
    match bytes.get(..NAME_MAX) {
        Some(beginning) => format!("{}…", show::name(beginning)),
        None => show::name(bytes),
    }
}

#[cfg(test)]
mod tests;
