;; What the tests run: the first letter of the first argument says what it does, the second argument is a number.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 512) "one\ntwo\nthree\n")
  (data (i32.const 544) "dev/termination-log")
  (data (i32.const 576) "it had enough")

  (func $write (param $stream i32) (param $from i32) (param $length i32)
    (i32.store (i32.const 0) (local.get $from))
    (i32.store (i32.const 4) (local.get $length))
    (drop (call $fd_write (local.get $stream) (i32.const 0) (i32.const 1) (i32.const 16))))

  (func $sleep (param $nanos i64)
    (i64.store (i32.const 128) (i64.const 0))
    (i32.store (i32.const 136) (i32.const 0))
    (i32.store (i32.const 144) (i32.const 1))
    (i64.store (i32.const 152) (local.get $nanos))
    (i64.store (i32.const 160) (i64.const 0))
    (i32.store (i32.const 168) (i32.const 0))
    (drop (call $poll_oneoff (i32.const 128) (i32.const 192) (i32.const 1) (i32.const 16))))

  ;; Writes a number as a line.
  (func $write_number (param $number i32)
    (local $from i32)
    (local.set $from (i32.const 300))
    (i32.store8 (local.get $from) (i32.const 10))
    (loop $digits
      (local.set $from (i32.sub (local.get $from) (i32.const 1)))
      (i32.store8 (local.get $from) (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10))))
      (local.set $number (i32.div_u (local.get $number) (i32.const 10)))
      (br_if $digits (local.get $number)))
    (call $write (i32.const 1) (local.get $from) (i32.sub (i32.const 301) (local.get $from))))

  ;; The number of an argument, in decimal digits.
  (func $number (param $at i32) (result i32)
    (local $number i32)
    (loop $digits
      (local.set $number (i32.add (i32.mul (local.get $number) (i32.const 10))
        (i32.sub (i32.load8_u (local.get $at)) (i32.const 48))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $digits (i32.load8_u (local.get $at))))
    (local.get $number))

  ;; Strings that end with 0, as lines.
  (func $write_lines (param $from i32) (param $length i32)
    (local $at i32)
    (block $end
      (loop $bytes
        (br_if $end (i32.ge_u (local.get $at) (local.get $length)))
        (if (i32.eqz (i32.load8_u (i32.add (local.get $from) (local.get $at))))
          (then (i32.store8 (i32.add (local.get $from) (local.get $at)) (i32.const 10))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $bytes)))
    (call $write (i32.const 1) (local.get $from) (local.get $length)))

  (func (export "_start")
    (local $command i32) (local $count i32) (local $size i32)
    (drop (call $args_sizes_get (i32.const 32) (i32.const 36)))
    (local.set $size (i32.load (i32.const 36)))
    (drop (call $args_get (i32.const 1024) (i32.const 2048)))
    (local.set $command (i32.load8_u (i32.load (i32.const 1028))))
    ;; exits N
    (if (i32.eq (local.get $command) (i32.const 101)) (then
      (call $proc_exit (call $number (i32.load (i32.const 1032))))))
    ;; forever
    (if (i32.eq (local.get $command) (i32.const 102)) (then
      (loop $on (call $sleep (i64.const 1000000000)) (br $on))))
    ;; prints
    (if (i32.eq (local.get $command) (i32.const 112)) (then
      (call $write (i32.const 1) (i32.const 512) (i32.const 4))
      (call $write (i32.const 2) (i32.const 520) (i32.const 6))
      (call $write (i32.const 1) (i32.const 516) (i32.const 4))))
    ;; counts
    (if (i32.eq (local.get $command) (i32.const 99)) (then
      (loop $on
        (local.set $count (i32.add (local.get $count) (i32.const 1)))
        (call $write_number (local.get $count))
        (call $sleep (i64.const 50000000))
        (br $on))))
    ;; arguments and environment
    (if (i32.eq (local.get $command) (i32.const 97)) (then
      (call $write_lines (i32.const 2048) (local.get $size))
      (drop (call $environ_sizes_get (i32.const 32) (i32.const 36)))
      (local.set $size (i32.load (i32.const 36)))
      (drop (call $environ_get (i32.const 4096) (i32.const 8192)))
      (call $write_lines (i32.const 8192) (local.get $size))))
    ;; busy
    (if (i32.eq (local.get $command) (i32.const 98)) (then (loop $on (br $on))))
    ;; trap
    (if (i32.eq (local.get $command) (i32.const 116)) (then unreachable))
    ;; grows
    (if (i32.eq (local.get $command) (i32.const 103)) (then
      (loop $on (br_if $on (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))))
    ;; message
    (if (i32.eq (local.get $command) (i32.const 109)) (then
      (if (call $path_open (i32.const 3) (i32.const 0) (i32.const 544) (i32.const 19)
            (i32.const 9) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 32)) (then unreachable))
      (call $write (i32.load (i32.const 32)) (i32.const 576) (i32.const 13))
      (call $proc_exit (i32.const 4))))
    ;; writes FOLDER: the message of the end, in an opened folder
    (if (i32.eq (local.get $command) (i32.const 119)) (then
      (if (call $path_open (call $number (i32.load (i32.const 1032))) (i32.const 0) (i32.const 548) (i32.const 15)
            (i32.const 9) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 32))
        (then (call $proc_exit (i32.const 1))))
      (call $write (i32.load (i32.const 32)) (i32.const 576) (i32.const 13))
      (call $proc_exit (i32.const 0))))
    ;; reads its input to the end
    (if (i32.eq (local.get $command) (i32.const 114)) (then
      (call $write (i32.const 1) (i32.const 512) (i32.const 4))
      (i32.store (i32.const 0) (i32.const 16384))
      (i32.store (i32.const 4) (i32.const 64))
      (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))
      (call $proc_exit (i32.const 7))))))
