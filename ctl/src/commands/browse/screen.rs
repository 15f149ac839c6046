//! The screen and the reads: what the view wants is asked for, while keys are
//! never kept waiting.

use client::Client;
use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{plan::Plan, view::Browser};
use crate::{
    call::Call,
    exit::Outcome,
    screen::{self, FRAME},
};

/// Takes the screen until the person has seen enough.
pub fn run(call: &Call, client: &Client, plan: Plan) -> Outcome {
    screen::hold(call, async |terminal| {
        let mut browser = Browser::new(plan);
        let mut asked = FuturesUnordered::new();
        loop {
            terminal.draw(|frame| browser.draw(frame))?;
            if !screen::keys(|key| browser.key(key))? {
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
    })
}
