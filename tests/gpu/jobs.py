"""Runs jobs in worker processes: a crash, a hang or a broken CUDA context costs one row, never the run.

A worker is `python SCRIPT --worker ...`: it reads one JSON object a line on stdin, and answers on the descriptor that COIL_ANSWER
names, also one JSON object a line: {"stage": text, ...fields of the row so far} as often as it likes, then {"done": row}. A row
with "retire": true ends the worker (its CUDA context is of no more use).
"""

import itertools
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

LOG_TAIL = 1500  # characters of a dead worker's output that its row keeps


class Worker:
    def __init__(self, command, env=None):
        reader, writer = os.pipe()
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self.log, stderr=self.log, text=True, pass_fds=(writer,), start_new_session=True,
                                        env=dict(os.environ, COIL_ANSWER=str(writer), **(env or {})))
        os.close(writer)
        self.answers, self.buffer = reader, b""

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def answer(self, seconds):
        """The next answer. TimeoutError when none comes in time, EOFError when the worker is gone."""
        end = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise TimeoutError(f"no answer in {seconds:.0f} s")
            data = os.read(self.answers, 1 << 16)
            if not data:
                raise EOFError
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def pause(self, stop):
        self.process.send_signal(signal.SIGSTOP if stop else signal.SIGCONT)

    def tail(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()[-LOG_TAIL:].strip()

    def how_it_ended(self):
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "it closed its answers and runs on"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # its own session: compilers that it started go too
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.answers)
        self.log.close()


def answer(message):
    """In the worker."""
    os.write(int(os.environ["COIL_ANSWER"]), (json.dumps(message) + "\n").encode())


def worker_loop(handle):
    """In the worker: handle(item, stage) returns the row; stage(text, **fields) tells how far it is."""
    os.set_inheritable(int(os.environ["COIL_ANSWER"]), False)  # else a child that lives on would hold it open
    answer({"stage": "ready"})
    for line in sys.stdin:
        answer({"done": handle(json.loads(line), lambda text, **fields: answer({"stage": text, **fields}))})


def do(worker, item):
    """(row, whether the worker can go on)."""
    row, stage, start = {}, "start", time.monotonic()
    try:
        worker.send(item)
        while True:
            message = worker.answer(item["limit"] - (time.monotonic() - start))
            if "done" in message:
                row = message["done"]
                return row, not row.pop("retire", False)
            stage = message.pop("stage")
            row.update(message)
    except TimeoutError:
        return row | {"status": "timeout", "stage": stage, "text": f"not done in {item['limit']} s (while: {stage})\n{worker.tail()}"}, False
    except (EOFError, BrokenPipeError):
        return row | {"status": "crash", "stage": stage, "text": f"the process ended with {worker.how_it_ended()} (while: {stage})\n{worker.tail()}"}, False


def run(command, items, workers, on_row, deadline=None, start_seconds=120):
    """Does all items, in order of start. on_row(item, row) is called for each, one at a time. Items have "limit" (seconds) and may
    have "fresh": a worker of its own; neighbours of one "group" go to one worker. After the deadline (time.monotonic) what has not
    started is a row "not run"."""
    waiting, lock = queue.SimpleQueue(), threading.Lock()
    for _, group in itertools.groupby(items, key=lambda item: item.get("group", id(item))):
        waiting.put(list(group))

    def serve():
        worker, group = None, []
        while True:
            try:
                group = group or waiting.get_nowait()
            except queue.Empty:
                break
            item = group.pop(0)
            start = time.monotonic()
            if deadline and start > deadline:
                row, good = {"status": "not run", "text": "the time budget was used up"}, True
            else:
                if worker is None:
                    worker = Worker(command)
                    try:
                        worker.answer(start_seconds)
                    except (TimeoutError, EOFError):
                        row, good = {"status": "crash", "stage": "start", "text": "the worker did not start: " + worker.tail()}, False
                        worker.stop()
                        worker = None
                        with lock:
                            on_row(item, row | {"seconds": round(time.monotonic() - start, 2)})
                        continue
                limit = item["limit"] if not deadline else max(5, min(item["limit"], deadline + 10 - time.monotonic()))
                row, good = do(worker, item | {"limit": limit})
            row["seconds"] = round(time.monotonic() - start, 2)
            with lock:
                on_row(item, row)
            if worker and (not good or item.get("fresh")):
                worker.stop()
                worker = None
        if worker:
            worker.stop()

    threads = [threading.Thread(target=serve) for _ in range(min(workers, max(1, len(items))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
