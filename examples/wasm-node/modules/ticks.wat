;; Writes a line each second. WASI preview 1, without files.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "tick\n")
  (func (export "_start")
    ;; One buffer; and one subscription to the monotonic clock, which ends in a second.
    (i32.store (i32.const 0) (i32.const 64))
    (i32.store (i32.const 4) (i32.const 5))
    (i32.store (i32.const 144) (i32.const 1))
    (i64.store (i32.const 152) (i64.const 1000000000))
    (loop $forever
      (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
      (drop (call $poll_oneoff (i32.const 128) (i32.const 192) (i32.const 1) (i32.const 16)))
      (br $forever))))
