//! Any message belongs to a channel or is an error; what is read can be written and read again.
#![no_main]

use kubelet_server::streaming::websocket::message::{Codec, Received};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| {
    for codec in [Codec::Binary, Codec::BinaryWithClose, Codec::Base64] {
        if let Ok(Received::Data {
            channel: channel @ 0..64,
            data,
        }) = codec.read(message)
        {
            let again = codec.read(&codec.write(channel, &data));
            assert_eq!(again, Ok(Received::Data { channel, data }));
        }
    }
});
