//! Calls that their caller drops.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Polls a call this many times and then drops it. `None` if it was not done. With each number, a call is dropped at
/// another of its awaits.
pub(crate) async fn cut_short<F: Future>(call: F, polls: u32) -> Option<F::Output> {
    let mut call = pin!(call);
    let mut left = polls;
    poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => {
            left = left.saturating_sub(1);
            if left == 0 {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn at_each_await() {
        let call = async || {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            7
        };
        for (polls, expected) in [(1, None), (3, None), (4, Some(7)), (9, Some(7))] {
            assert_eq!(cut_short(call(), polls).await, expected, "{polls} polls");
        }
    }
}
