;; Writes a number and the file `greeting` of its first volume, each second. WASI preview 1.
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "greeting")
  (data (i32.const 80) "the first volume has no file `greeting`\n")
  ;; The folder 3 is the root, 4 is the first volume.
  (global $volume i32 (i32.const 4))
  ;; 0: the buffer of a call. 16: its result. 256: the digits end here. 256...: a space, then the greeting.
  (global $text i32 (i32.const 256))

  (func $write (param $stream i32) (param $from i32) (param $length i32)
    (i32.store (i32.const 0) (local.get $from))
    (i32.store (i32.const 4) (local.get $length))
    (drop (call $fd_write (local.get $stream) (i32.const 0) (i32.const 1) (i32.const 16))))

  ;; Reads the greeting behind the space, and returns its length.
  (func $read_greeting (result i32)
    (if (call $path_open (global.get $volume) (i32.const 1) (i32.const 64) (i32.const 8)
          (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16))
      (then
        (call $write (i32.const 2) (i32.const 80) (i32.const 40))
        (call $proc_exit (i32.const 1))))
    (i32.store (i32.const 0) (i32.add (global.get $text) (i32.const 1)))
    (i32.store (i32.const 4) (i32.const 1024))
    (drop (call $fd_read (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 20)))
    (i32.load (i32.const 20)))

  ;; Sleeps a second: one subscription to the monotonic clock.
  (func $sleep
    (i64.store (i32.const 128) (i64.const 0))
    (i32.store (i32.const 136) (i32.const 0))
    (i32.store (i32.const 144) (i32.const 1))
    (i64.store (i32.const 152) (i64.const 1000000000))
    (i64.store (i32.const 160) (i64.const 0))
    (i32.store (i32.const 168) (i32.const 0))
    (drop (call $poll_oneoff (i32.const 128) (i32.const 192) (i32.const 1) (i32.const 16))))

  (func (export "_start")
    (local $greeting i32) (local $number i32) (local $rest i32) (local $from i32)
    (local.set $greeting (call $read_greeting))
    (i32.store8 (global.get $text) (i32.const 32))
    (i32.store8 (i32.add (i32.add (global.get $text) (i32.const 1)) (local.get $greeting)) (i32.const 10))
    (loop $forever
      (local.set $number (i32.add (local.get $number) (i32.const 1)))
      (local.set $rest (local.get $number))
      (local.set $from (global.get $text))
      (loop $digits
        (local.set $from (i32.sub (local.get $from) (i32.const 1)))
        (i32.store8 (local.get $from) (i32.add (i32.const 48) (i32.rem_u (local.get $rest) (i32.const 10))))
        (local.set $rest (i32.div_u (local.get $rest) (i32.const 10)))
        (br_if $digits (local.get $rest)))
      (call $write (i32.const 1) (local.get $from)
        (i32.add (i32.sub (global.get $text) (local.get $from)) (i32.add (local.get $greeting) (i32.const 2))))
      (call $sleep)
      (br $forever))))
