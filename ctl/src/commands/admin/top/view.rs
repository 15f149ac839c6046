//! The screen: pure, so that it can be tested without one.

use ratatui::{
    Frame,
    crossterm::event::KeyCode,
    layout::{Constraint, Layout},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Paragraph, Row, Table, Wrap},
};

use super::{
    super::gofmt,
    gather::{Round, Sample},
};

/// What is shown, and how.
#[derive(Debug, Default)]
pub struct Top {
    now: Option<Round>,
    before: Option<Round>,
    sort: usize,
    reverse: bool,
    selected: usize,
    detail: bool,
}

/// A column: heading, width, cell, and what to sort by.
struct Column {
    heading: &'static str,
    width: u16,
    cell: fn(&Top, &Sample) -> String,
    order: fn(&Top, &Sample) -> f64,
}

/// In the order of their weight: a narrow screen has the first of them.
const COLUMNS: &[Column] = &[
    Column { heading: "NAME", width: 12, cell: |_, s| s.name.clone(), order: |_, _| 0.0 },
    Column { heading: "ROLE", width: 9, cell: |_, s| role(s).to_owned(), order: |_, s| f64::from(role(s) != "leader") },
    Column { heading: "LAG", width: 8, cell: |t, s| count(t.lag(s)), order: |t, s| t.lag(s).unwrap_or(f64::MAX) },
    Column { heading: "LATENCY", width: 10, cell: |_, s| latency(s), order: |_, s| s.latency.as_secs_f64() },
    Column { heading: "WRITES/S", width: 9, cell: |t, s| count(t.writes(s)), order: |t, s| t.writes(s).unwrap_or(0.0) },
    Column { heading: "READS/S", width: 9, cell: |t, s| count(t.reads(s)), order: |t, s| t.reads(s).unwrap_or(0.0) },
    Column { heading: "SIZE", width: 8, cell: |_, s| size(s), order: |_, s| status(s, |s| s.db_size).unwrap_or(0.0) },
    Column { heading: "WATCHERS", width: 9, cell: |_, s| count(s.watchers), order: |_, s| s.watchers.unwrap_or(0.0) },
    Column { heading: "LEASES", width: 8, cell: |_, s| count(s.leases), order: |_, s| s.leases.unwrap_or(0.0) },
    Column { heading: "MEMORY", width: 8, cell: |_, s| bytes(s.memory), order: |_, s| s.memory.unwrap_or(0.0) },
    Column {
        heading: "REVISION",
        width: 12,
        cell: |_, s| count(revision(s)),
        order: |_, s| revision(s).unwrap_or(0.0),
    },
    Column { heading: "ENDPOINT", width: 26, cell: |_, s| s.endpoint.clone(), order: |_, _| 0.0 },
];

fn status(sample: &Sample, of: fn(&client::wire::etcdserverpb::StatusResponse) -> i64) -> Option<f64> {
    sample.status.as_ref().ok().map(|s| of(s) as f64)
}

fn revision(sample: &Sample) -> Option<f64> {
    status(sample, |s| s.header.as_ref().map_or(0, |h| h.revision))
}

fn role(sample: &Sample) -> &'static str {
    match &sample.status {
        Err(_) => "down",
        Ok(s) if s.is_learner => "learner",
        Ok(s) if s.leader == 0 => "no leader",
        Ok(s) if s.header.as_ref().is_some_and(|h| h.member_id == s.leader) => "leader",
        Ok(_) => "follower",
    }
}

fn count(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
}

fn bytes(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| gofmt::size(value.max(0.0) as u64))
}

fn size(sample: &Sample) -> String {
    bytes(status(sample, |s| s.db_size))
}

fn latency(sample: &Sample) -> String {
    if sample.status.is_err() { "-".to_owned() } else { format!("{:.1}ms", sample.latency.as_secs_f64() * 1e3) }
}

impl Top {
    /// A new round is there.
    pub fn take(&mut self, round: Round) {
        self.before = self.now.replace(round);
    }

    /// A key was pressed; `false` if it ends the program.
    pub fn key(&mut self, key: KeyCode) -> bool {
        let last = self.now.as_ref().map_or(0, |round| round.samples.len().saturating_sub(1));
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Esc if !self.detail => return false,
            KeyCode::Esc => self.detail = false,
            KeyCode::Char('s') => self.sort = (self.sort + 1) % COLUMNS.len(),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected = (self.selected + 1).min(last),
            KeyCode::Enter => self.detail = !self.detail,
            _ => {}
        }
        true
    }

    /// How many entries a member has yet to apply.
    fn lag(&self, sample: &Sample) -> Option<f64> {
        let own = sample.status.as_ref().ok()?.raft_applied_index;
        let all = self.now.iter().flat_map(|round| &round.samples).filter_map(|s| s.status.as_ref().ok());
        all.map(|s| s.raft_index.max(s.raft_applied_index)).max().map(|newest| newest.saturating_sub(own) as f64)
    }

    fn writes(&self, sample: &Sample) -> Option<f64> {
        self.rate(sample, revision)
    }

    fn reads(&self, sample: &Sample) -> Option<f64> {
        self.rate(sample, |s| s.reads)
    }

    /// What was added in a second since the round before.
    fn rate(&self, sample: &Sample, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let (before, now) = (self.before.as_ref()?, self.now.as_ref()?);
        let old = before.samples.iter().find(|s| s.endpoint == sample.endpoint)?;
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(0.001);
        Some(((of(sample)? - of(old)?) / seconds).max(0.0))
    }

    fn sorted(&self) -> Vec<&Sample> {
        let mut samples: Vec<&Sample> = self.now.iter().flat_map(|round| &round.samples).collect();
        let column = &COLUMNS[self.sort];
        samples.sort_by(|a, b| {
            let by = (column.order)(self, a).total_cmp(&(column.order)(self, b));
            by.then_with(|| (column.cell)(self, a).cmp(&(column.cell)(self, b)))
        });
        if self.reverse {
            samples.reverse();
        }
        samples
    }

    /// Draws everything.
    pub fn draw(&self, frame: &mut Frame) {
        let samples = self.sorted();
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        frame.render_widget(Line::from(self.summary(&samples)), head);
        match samples.get(self.selected.min(samples.len().saturating_sub(1))) {
            Some(sample) if self.detail => {
                let title = format!(" {} ", if sample.name.is_empty() { &sample.endpoint } else { &sample.name });
                let page = Paragraph::new(detail(self, sample)).wrap(Wrap { trim: false });
                frame.render_widget(page.block(Block::bordered().title(title)), body);
            }
            _ => self.draw_table(frame, body, &samples),
        }
        let keys = format!("q quit  s sort:{}  r reverse  Enter look into", COLUMNS[self.sort].heading);
        frame.render_widget(Line::from(keys), foot);
    }

    fn summary(&self, samples: &[&Sample]) -> String {
        if self.now.is_none() {
            return "asking the members…".to_owned();
        }
        let up = samples.iter().filter(|s| s.status.is_ok()).count();
        let leader = samples.iter().find(|s| role(s) == "leader").map_or("nobody", |s| &s.name);
        let term = samples.iter().filter_map(|s| s.status.as_ref().ok()).map(|s| s.raft_term).max();
        let alarms: usize = samples.iter().filter_map(|s| s.status.as_ref().ok()).map(|s| s.errors.len()).sum();
        let alarms = if alarms == 0 { String::new() } else { format!("  ERRORS {alarms}") };
        format!("{up}/{} up  leader {leader}  term {}{alarms}", samples.len(), term.unwrap_or(0))
    }

    fn draw_table(&self, frame: &mut Frame, area: ratatui::layout::Rect, samples: &[&Sample]) {
        let mut room = area.width;
        let columns: Vec<&Column> = COLUMNS
            .iter()
            .take_while(|column| {
                let fits = room >= column.width;
                room = room.saturating_sub(column.width + 1);
                fits
            })
            .collect();
        let rows = samples.iter().enumerate().map(|(at, sample)| {
            let row = Row::new(columns.iter().map(|column| (column.cell)(self, sample)));
            let chosen = at == self.selected.min(samples.len() - 1);
            if chosen { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
        });
        let heads =
            Row::new(columns.iter().map(|column| column.heading)).style(Style::new().add_modifier(Modifier::BOLD));
        let widths: Vec<Constraint> = columns.iter().map(|column| Constraint::Length(column.width)).collect();
        frame.render_widget(Table::new(rows, widths).header(heads), area);
    }
}

/// All there is of a member.
fn detail(top: &Top, sample: &Sample) -> String {
    let mut lines: Vec<String> = COLUMNS
        .iter()
        .map(|column| format!("{:<12} {}", column.heading.to_lowercase(), (column.cell)(top, sample)))
        .collect();
    match &sample.status {
        Err(error) => lines.push(format!("{:<12} {error}", "error")),
        Ok(status) => {
            let id = status.header.as_ref().map_or(0, |h| h.member_id);
            lines.push(format!("{:<12} {id:x}", "id"));
            lines.push(format!("{:<12} {} (storage {})", "version", status.version, status.storage_version));
            lines.push(format!("{:<12} {}", "in use", bytes(Some(status.db_size_in_use as f64))));
            lines.push(format!("{:<12} {}", "quota", bytes(Some(status.db_size_quota as f64))));
            lines.push(format!("{:<12} {} / {}", "log", status.raft_applied_index, status.raft_index));
            lines.extend(status.errors.iter().map(|error| format!("{:<12} {error}", "error")));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use client::wire::etcdserverpb::{ResponseHeader, StatusResponse};
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn sample(name: &str, id: u64, applied: u64, revision: i64) -> Sample {
        let header = Some(ResponseHeader { member_id: id, revision, ..Default::default() });
        Sample {
            name: name.to_owned(),
            endpoint: format!("http://{name}:2379"),
            status: Ok(StatusResponse {
                header,
                leader: 1,
                raft_term: 7,
                raft_index: applied,
                raft_applied_index: applied,
                db_size: 20_480,
                ..Default::default()
            }),
            latency: Duration::from_micros(1_250),
            watchers: Some(3.0),
            reads: Some(revision as f64),
            memory: Some(25e6),
            leases: Some(2.0),
        }
    }

    fn top() -> Top {
        let begin = Instant::now();
        let mut top = Top::default();
        let down = Sample {
            status: Err("no answer".to_owned()),
            watchers: None,
            reads: None,
            leases: None,
            ..sample("m3", 3, 0, 0)
        };
        for (second, revision) in [(0, 100), (2, 300)] {
            let samples = vec![sample("m1", 1, 90, revision), sample("m2", 2, 80, revision), down.clone()];
            top.take(Round { at: begin + Duration::from_secs(second), samples });
        }
        top
    }

    fn screen(top: &Top, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| top.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let cells = buffer.content();
        let line = |row: &[ratatui::buffer::Cell]| {
            row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n"
        };
        cells.chunks(usize::from(width)).map(line).collect()
    }

    #[test]
    fn a_cluster_with_one_member_down() {
        assert_eq!(
            screen(&top(), 90, 6),
            "\
2/3 up  leader m1  term 7
NAME         ROLE      LAG      LATENCY    WRITES/S  READS/S   SIZE     WATCHERS  LEASES
m1           leader    0        1.2ms      100       100       20 kB    3         2
m2           follower  10       1.2ms      100       100       20 kB    3         2
m3           down      -        -          -         -         -        -         -
q quit  s sort:NAME  r reverse  Enter look into
"
        );
    }

    #[test]
    fn keys_sort_turn_round_and_look_into() {
        let mut top = top();
        assert!(top.key(KeyCode::Char('r')));
        assert!(screen(&top, 30, 6).lines().nth(2).unwrap().starts_with("m3"));
        assert!(top.key(KeyCode::Enter));
        assert!(screen(&top, 40, 20).contains("error        no answer"));
        assert!(top.key(KeyCode::Down), "another member");
        assert!(screen(&top, 40, 30).contains("log          80 / 80"));
        assert!(top.key(KeyCode::Esc), "it leaves the page first");
        assert!(!top.key(KeyCode::Esc));
        assert!(!top.key(KeyCode::Char('q')));
    }

    #[test]
    fn no_screen_is_too_small() {
        let mut top = top();
        for detail in [false, true] {
            top.detail = detail;
            for width in 1..40 {
                for height in 1..6 {
                    screen(&top, width, height);
                }
            }
        }
        screen(&Top::default(), 80, 24);
    }
}
