//! The terminal and the reads: what the view wants is asked for, while keys
//! are never kept waiting.

use std::time::Duration;

use client::Client;
use futures_util::{StreamExt, stream::FuturesUnordered};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::{Plan, view::Browser};
use crate::{
    call::Call,
    exit::{Failure, Outcome},
};

/// How long a key may wait.
const FRAME: Duration = Duration::from_millis(50);

/// Takes the screen until the person has seen enough.
pub fn run(call: &Call, client: &Client, plan: Plan) -> Outcome {
    let mut terminal = ratatui::try_init().map_err(|e| Failure::io(&e))?;
    let ended = call.block_on(async {
        let mut browser = Browser::new(plan);
        let mut asked = FuturesUnordered::new();
        loop {
            terminal.draw(|frame| browser.draw(frame))?;
            if !keys(&mut browser)? {
                return Ok(());
            }
            while let Some(ask) = browser.wants() {
                asked.push(async move { (ask.life, ask.about, client.range(ask.request).await) });
            }
            tokio::select! {
                Some((life, about, answer)) = asked.next(), if !asked.is_empty() => browser.take(life, about, answer),
                () = tokio::time::sleep(FRAME) => {}
            }
        }
    });
    ratatui::restore();
    ended.map_err(|e: std::io::Error| Failure::io(&e))
}

/// Does what the keys say that were pressed; `false` ends the program.
fn keys(browser: &mut Browser) -> std::io::Result<bool> {
    while event::poll(Duration::ZERO)? {
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            if (control && key.code == KeyCode::Char('c')) || !browser.key(key.code) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
