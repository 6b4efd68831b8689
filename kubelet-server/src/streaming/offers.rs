//! The offers that wait for their clients, by token.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use tokio::time::Instant;

/// So long a client may take to come.
const TTL: Duration = Duration::from_secs(60);
/// So many offers may wait.
const MAX_OFFERS: usize = 1000;
/// The random bytes of a token: 8 characters.
const TOKEN_BYTES: usize = 6;

/// Offers by token. Each can be taken once, within a minute.
pub(super) struct Offers<T> {
    waiting: Mutex<Waiting<T>>,
}

struct Waiting<T> {
    by_token: HashMap<String, T>,
    /// Oldest first.
    expiry: VecDeque<(Instant, String)>,
}

/// Why an offer was refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    TooMany,
    NoRandom(std::io::ErrorKind),
}

impl<T> Offers<T> {
    pub(super) fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                by_token: HashMap::new(),
                expiry: VecDeque::new(),
            }),
        }
    }

    pub(super) fn insert(&self, offer: T) -> Result<String, Refused> {
        let mut waiting = self.waiting.lock();
        waiting.expire(Instant::now());
        if waiting.by_token.len() >= MAX_OFFERS {
            return Err(Refused::TooMany);
        }
        let token = loop {
            let token = random_token().map_err(|error| Refused::NoRandom(error.kind()))?;
            if !waiting.by_token.contains_key(&token) {
                break token;
            }
        };
        waiting.by_token.insert(token.clone(), offer);
        waiting.expiry.push_back((Instant::now() + TTL, token.clone()));
        Ok(token)
    }

    pub(super) fn take(&self, token: &str) -> Option<T> {
        let mut waiting = self.waiting.lock();
        waiting.expire(Instant::now());
        let offer = waiting.by_token.remove(token)?;
        waiting.expiry.retain(|(_, t)| t != token);
        Some(offer)
    }
}

impl<T> Waiting<T> {
    fn expire(&mut self, now: Instant) {
        while self.expiry.front().is_some_and(|(until, _)| *until < now) {
            if let Some((_, token)) = self.expiry.pop_front() {
                self.by_token.remove(&token);
            }
        }
    }
}

/// A token that nobody can guess: whoever has it runs the command.
fn random_token() -> std::io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_offer_is_taken_once() {
        let offers = Offers::new();
        let token = offers.insert(7).unwrap();
        assert_eq!(token.len(), 8);
        assert_eq!(offers.take("nonsense"), None);
        assert_eq!(offers.take(&token), Some(7));
        assert_eq!(offers.take(&token), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_offer_expires() {
        let offers = Offers::new();
        let token = offers.insert(1).unwrap();
        tokio::time::advance(TTL + Duration::from_secs(1)).await;
        assert_eq!(offers.take(&token), None);
    }

    #[tokio::test(start_paused = true)]
    async fn offers_are_bounded() {
        let offers = Offers::new();
        let tokens: Vec<_> = (0..MAX_OFFERS).map(|n| offers.insert(n).unwrap()).collect();
        assert_eq!(offers.insert(0), Err(Refused::TooMany));
        assert_eq!(offers.take(&tokens[3]), Some(3));
        offers.insert(0).unwrap();
        tokio::time::advance(TTL + Duration::from_secs(1)).await;
        offers.insert(0).unwrap();
        assert_eq!(offers.waiting.lock().by_token.len(), 1);
    }
}
