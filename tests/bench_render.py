"""What a rendered deck costs, stock Slidev and ours in one run over the same decks: prints a markdown page (docs/maintain/speed.md).

  tests/bench_render.py [--decks N] [--ours]
  tests/bench_render.py --pages [--decks N]   where a page's cost goes, other ways tried (docs/maintain/speed.md)

The decks are N of data/gold, spread over it, or where it has fewer than ten those of tests/fixtures/bench. CPU seconds
are of the whole process tree: every command runs under a reaper that adopts and waits for all that it leaves behind.
Stock Slidev comes from tests/fixtures/bench/stock and is installed outside the repository; it drives the same Chromium,
with the same fonts.
"""

import argparse
import ctypes
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "fixtures" / "bench"
NODE = ROOT / ".venv" / "bin" / "node"
GOLD = ROOT / "data" / "gold"
SCALE = 2


def reap(report, command):
    """Run a command as its reaper: every orphan of the tree becomes our child, so that its CPU seconds reach our account."""
    import resource

    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    began = time.monotonic()
    status = subprocess.call(command)
    wall = time.monotonic() - began
    for _ in range(100):
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.1)
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(report).write_text(json.dumps({"cpu": used.ru_utime + used.ru_stime, "wall": wall}))
    return status


def usage(pid):
    """(MiB of the tree of a process, shared pages counted once (PSS); CPU seconds of it and of all it has waited for)."""
    total, ticks, waiting = 0, 0, [pid]
    while waiting:
        member = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{member}/task"):
                waiting += map(
                    int, Path(f"/proc/{member}/task/{task}/children").read_text().split()
                )
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
            total += int(
                re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{member}/smaps_rollup").read_text(), re.M)[
                    1
                ]
            )
        except (OSError, TypeError):
            continue
    return total / 1024, ticks / os.sysconf("SC_CLK_TCK")


def measured(command, *, watch=0.2, trace=None, **options):
    """Run a command to its end: {cpu, wall, peak (MiB), out}; `trace` receives (seconds, MiB) on the way."""
    with (
        tempfile.NamedTemporaryFile() as report,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        process = subprocess.Popen(
            [sys.executable, __file__, "--reap", report.name, *map(str, command)],
            stdout=out,
            stderr=err,
            **options,
        )
        peak, least, began = 0, 0, time.monotonic()
        while process.poll() is None:
            now, cpu = usage(process.pid)
            peak, least = max(peak, now), max(least, cpu)
            if trace is not None:
                trace.append((time.monotonic() - began, now))
            time.sleep(watch)
        out.seek(0)
        err.seek(0)
        text, words = out.read().decode(), err.read().decode("utf-8", "replace")
        if process.returncode:
            sys.exit(
                f"{' '.join(map(str, command))} failed ({process.returncode}):\n{text[-1000:]}\n{words[-3000:]}"
            )
        total = json.loads(Path(report.name).read_text())
        # The kernel forgets the time of what it kills together with a process namespace.
        return {**total, "cpu": max(total["cpu"], least), "peak": peak, "out": text}


# --- the decks ------------------------------------------------------------------------------------


def decks(count, folder):
    """Lay out `count` decks with their drawn pictures, as run `folder`; returns their records and where they come from."""
    from decksmith.measure.decks import pictures

    source, paths = "data/gold", sorted(GOLD.glob("*/deck.md"))
    if len(paths) < 10:
        source, paths = "tests/fixtures/bench", sorted(FIXTURES.glob("*.md"))
    count, records = min(count, len(paths)), []
    for path in (paths[turn * len(paths) // count] for turn in range(count)):
        name = path.parent.name if path.stem == "deck" else path.stem
        deck, record = folder / name / "deck.md", {"id": name, "deck": {"path": f"{name}/deck.md"}}
        (folder / name / "images").mkdir(parents=True)
        shutil.copy(path, deck)
        illustrated = folder / pictures.illustrate(folder, record)["path"]
        deck.write_text(illustrated.read_text())
        for picture in set(re.findall(r"images/([\w-]+)\.png", deck.read_text())):
            if not (folder / name / "images" / f"{picture}.png").exists():
                (folder / name / "images" / f"{picture}.png").write_bytes(
                    pictures.drawn(picture.replace("-", " "))
                )
        records.append(record)
    return records, source


def slides(text):
    """How many slides a deck shows."""
    from decksmith.measure.decks.parser import Deck

    return len(Deck.parse(text).shown)


# --- stock ----------------------------------------------------------------------------------------


def toolchain():
    """Folder of the stock toolchain, installed from the lock when it is not there yet."""
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "decksmith"
        / "stock-slidev"
    )
    if (
        not (cache / ".done").exists()
        or (cache / "package-lock.json").read_bytes()
        != (FIXTURES / "stock" / "package-lock.json").read_bytes()
    ):
        shutil.rmtree(cache, ignore_errors=True)
        shutil.copytree(FIXTURES / "stock", cache)
        environment = {
            **os.environ,
            "PATH": f"{NODE.parent}:/usr/bin:/bin",
            "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1",
        }
        subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
            cwd=cache,
            env=environment,
            check=True,
            stdout=sys.stderr,
        )
        (cache / ".done").touch()
    return cache


def browser():
    """Folder of our pinned Chromium."""
    script = f"console.log(await (await import({json.dumps(str(ROOT / 'assets/renderer/browser.mjs'))})).unpack())"
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", script], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


def stock(records, source, *options):
    """`slidev export` of every deck, one process each, one after the other."""
    tools, chromium = toolchain(), browser()
    work = tools / f"decks-{os.getpid()}"
    home = work / "home"
    home.mkdir(parents=True)
    environment = {
        "PATH": f"{NODE.parent}:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC",
        "LD_LIBRARY_PATH": str(chromium / "lib"), "FONTCONFIG_FILE": str(chromium / "fonts.conf"),
    }  # fmt: skip
    total = {"cpu": 0, "wall": 0, "peak": 0, "slides": 0}
    try:
        # The first record once more, before it counts: its deck fills Vite's cache of dependencies.
        for turn, record in enumerate([records[0], *records]):
            place = work / f"{turn}-{record['id']}"
            shutil.copytree(source / record["id"] / "images", place / "public" / "images")
            # As a careful user does: pictures by their absolute address, and no request for web fonts, which this comparison leaves out.
            text = (source / record["deck"]["path"]).read_text()
            theirs = re.sub(r"(?<![\w/.-])images/", "/images/", text)
            (place / "slides.md").write_text(
                theirs.replace("---\n", "---\nfonts:\n  provider: none\n", 1)
            )
            command = [
                NODE, tools / "node_modules/@slidev/cli/bin/slidev.mjs", "export", "slides.md", "--format", "png", "--output", "out",
                "--scale", SCALE, "--timeout", 120000, "--executable-path", chromium / "chromium", *options,
            ]  # fmt: skip
            for attempt in (
                1,
                2,
                3,
            ):  # Vite reloads a page at times, and the export ends; what failed is not counted
                try:
                    done = measured(
                        command,
                        cwd=place,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                    made = len(list((place / "out").rglob("*.png"))) or len(
                        list(place.glob("out*.png"))
                    )
                    if made != slides(text):
                        raise SystemExit(
                            f"{record['id']} has {made} pictures of {slides(text)}: {done['out'][-300:]}"
                        )
                    break
                except SystemExit as error:
                    if attempt == 3:
                        raise
                    print(
                        f"stock {options}: {record['id']} once more: {str(error)[-300:]}",
                        file=sys.stderr,
                    )
            if not turn:
                continue
            total = {
                key: max(total[key], done[key]) if key == "peak" else total[key] + done[key]
                for key in ("cpu", "wall", "peak")
            } | {"slides": total["slides"] + made}
            print(f"stock {options}: {record['id']} {done['cpu']:.1f} CPU s", file=sys.stderr)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return total


# --- ours -----------------------------------------------------------------------------------------


def ours(records, run, *options, cache=None, kept="off", trace=None):
    """One deck-render over all decks; `kept` is the folder of finished renders, which other runs leave alone."""
    environment = {**os.environ, "IMAGES": "off", "DECKSMITH_RENDERS": str(kept)}
    environment |= {"DECKSMITH_RENDER_CACHE": str(cache)} if cache else {}
    with tempfile.TemporaryFile("w+") as source:
        source.writelines(json.dumps(record) + "\n" for record in records)
        source.seek(0)
        done = measured(
            [ROOT / "bin" / "deck-render", "--run", run, *options],
            stdin=source,
            env=environment,
            trace=trace,
        )
    rows = [json.loads(line) for line in done.pop("out").splitlines()]
    for row in rows:
        wanted = slides((run / row["deck"]["path"]).read_text())
        if row["render"]["status"] != "ok" or len(row["render"]["slides"]) != wanted:
            sys.exit(
                f"{row['id']}: {len(row['render']['slides'])} slides of {wanted}: {row['render']['errors']}"
            )
    print(f"ours {options}: {done['cpu'] / len(rows):.2f} CPU s a deck", file=sys.stderr)
    return {**done, "slides": sum(len(row["render"]["slides"]) for row in rows)}


def floor(run, records, scale):
    """Pictures of pages that are already loaded: CPU seconds of browser and Node."""
    done = subprocess.run(
        [NODE, FIXTURES / "floor.mjs", str(scale), str(run), *[record["id"] for record in records]],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return {**json.loads(done.stdout.splitlines()[-1]), "peak": None}


# --- one page -------------------------------------------------------------------------------------

KINDS = ("renderer", "browser", "gpu-process", "utility", "node")


def pages(count):
    """Print where the CPU seconds of pictures go by process and thread, and what other ways cost (docs/maintain/speed.md)."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="bench-render-") as folder:
        records, origin = decks(count, Path(folder) / "source")
        for scale in (2, 1):
            command = [NODE, FIXTURES / "tries.mjs", scale, 3, Path(folder) / "source"]
            command += [record["id"] for record in records]
            done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, check=True)
            results[scale] = {
                name: sorted(turns, key=lambda turn: sum(turn["processes"].values()))[1]
                for name, turns in json.loads(done.stdout).items()
            }
    count, slides = len(records), results[2]["as it is"]["slides"]
    print("# Where the cost of a picture goes\n")
    print(
        f"Written by `make bench-render-pages` on {os.cpu_count()} cores: {count} decks of {origin}, {slides} slides. "
        "Every deck is compiled before the clock starts; no walls. Milliseconds of CPU per deck; of three turns, in which all ways took "
        "turns, the one in the middle.\n"
    )
    print(
        "The first row of a table is what `deck-render` does; a page for every slide and optimizing compilers are what it did before. One tile a "
        "picture is not taken, because pictures differ, nor graphics inside the browser process, which takes down a wall.\n"
    )
    print(
        "Tried on 2026-11-23 and not taken either: Skia's instructions of this processor save 65 ms of the GPU process at scale 2, and pictures "
        "with gradients and filters then depend on the processor; a window of one pixel saves it 20 ms and costs the renderer as much; a larger "
        "first heap, no Sparkplug, scripts parsed as a whole, and the slides without code before the others: no difference. At scale 1, by runs that "
        "differ by 5 %: one raster thread, zero copy and no antialiasing in the compositor: no difference; the network inside the browser process "
        "costs 3 % more; tiles of 512 px save 10 %, and pictures differ.\n"
    )
    print(
        "Tried on 2026-11-28, on a loaded machine, so by ratios within a run (10 decks, scale 2 unless said):\n"
        "\n"
        "| way | CPU of a deck | |\n"
        "|---|---:|---|\n"
        "| the third row, and a second picture, without letters, only of slides that may paint them, instead of all | -28 to -38 %, four pairs | taken |\n"
        "| both at scale 1 | -9 and -12 % | taken |\n"
        "| lines of a PNG decoded four bytes at a time | 9.8 to 5.9 ms a picture | taken |\n"
        "| shared memory in a tmpfs instead of on disk | -4 to -9 %, once +31 % | not taken: it would count against the memory of a deck |\n"
        "| the young heap of V8 cleaned after each comparison | no less | not taken |\n"
        "| a slide is mounted without frames, and the ink of a line is summed by whole pixels | -2 to -3 % without Node's share, two runs of 12 pairs; the same way against itself 1.5 % | the second half is taken; the first is not worth its lines |\n"
        "| one app that moves from slide to slide by its router, with the row above | -5 to -6 %; 41 decks of data/reference and data/gold, scale 1: every picture and measure equal | not taken yet: what academic, frankfurt and penguin lay over all slides would keep its state |\n"
        "| raw surfaces instead of PNG | at most -7 %, what coding takes; 9,400 page faults a slide, half of the GPU process's time, stay | not tried: the interface gives PNG, JPEG and WebP |\n"
        "| another headless shell of this version from npm or PyPI | none: @sparticuz/chromium is one, others download theirs elsewhere | not taken |\n"
        "\n"
        "Tried on 2026-11-29, for the start of a worker and its first deck (three slides; Node's CPU seconds, medians of eight to ten pairs):\n"
        "\n"
        "| way | CPU s | |\n"
        "|---|---:|---|\n"
        "| Slidev's TypeScript as Babel left it at set-up, the runtime's icons with it, no JavaScript grammar before the first deck, no JSX compiler, no inspector of UnoCSS | 5.2 to 4.0; by the clock 5.8 to 4.8 s | taken |\n"
        "| its packages bundled into one folder, other heaps and threads of V8 | no less | not taken |\n"
        "| packages that it loads and never calls are left out by name (bundlers, plugins, servers, schemas); the runtime is minified at set-up | 2.65 to 1.92; by the clock 2.20 to 1.59 s | taken |\n"
        "| with those left out: the rest bundled into one folder, and V8's compile cache | 1.91 to 1.56 | not taken: a worker may not write where its cache would be |\n"
        "| every pattern compiled one way, whatever its use | no less | taken: colours of code hung on the decks before |\n"
        "| of set-up: three themes bundled by one process, UnoCSS over Slidev's and the theme's own modules | 57 to 39; by the clock 29 to 28 s | taken |\n"
    )
    for scale, ways in results.items():
        print(f"## Device scale {scale}\n")
        print(f"| | all | {' | '.join(KINDS)} | pictures that differ |\n|---|" + "---:|" * 7)
        for name, row in ways.items():
            each = [row["processes"].get(kind, 0) for kind in KINDS]
            figures = [
                f"{1000 * part / count:.0f}" for part in (sum(row["processes"].values()), *each)
            ]
            print(f"| {name} | {' | '.join(figures)} | {row['differ']} |")
        print(
            "\nAs it is, the threads that take most:\n\n| process | thread | ms |\n|---|---|---:|"
        )
        threads = sorted(ways["as it is"]["threads"].items(), key=lambda pair: -pair[1])
        for name, seconds in threads[:10]:
            print(f"| {' | '.join(name.split(' ', 1))} | {1000 * seconds / count:.0f} |")
        print()


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--decks", type=int, default=10, help="how many decks")
    options.add_argument("--ours", action="store_true", help="leave stock Slidev out")
    options.add_argument(
        "--many",
        type=int,
        default=10,
        help="how often the decks are repeated in the run for memory; 0: not at all",
    )
    options.add_argument(
        "--pages", action="store_true", help="where the cost of a page goes, and nothing else"
    )
    args = options.parse_args()
    if args.pages:
        return pages(args.decks)
    rows = {}
    with tempfile.TemporaryDirectory(prefix="bench-render-") as folder:
        folder = Path(folder)
        records, origin = decks(args.decks, folder / "source")
        count = len(records)

        def run(name):
            shutil.copytree(folder / "source", folder / name)
            return folder / name

        def thrice(measure):
            """The middle of three by CPU seconds; `measure` gets the number of the turn."""
            return sorted((measure(turn) for turn in range(3)), key=lambda row: row["cpu"])[1]

        at = ["--scale", SCALE]
        if not args.ours:
            rows["stock, `slidev export --per-slide`, a process per deck"] = stock(
                records, folder / "source", "--per-slide"
            )
            rows["stock, `slidev export` in one piece, a process per deck"] = stock(
                records, folder / "source"
            )
        rows["ours, nothing kept (runtimes of three themes built)"] = ours(
            records, run("cold"), *at, cache=folder / "cache"
        )
        ours(records[:1], run("first"), *at)
        rows["**ours**"] = thrice(lambda turn: ours(records, run(f"warm{turn}"), *at))
        rows["ours, all from the journal"] = ours(records, folder / "warm0", *at)
        ours(records, run("keep"), *at, kept=folder / "kept")
        rows["ours, rendered before in another run"] = ours(
            records, run("other"), *at, kept=folder / "kept"
        )
        rows["ours, `--jobs 2`"] = ours(records, run("two"), *at, "--jobs", "2")
        rows["floor: pictures of loaded pages"] = thrice(
            lambda _: floor(folder / "warm0", records, SCALE)
        )
        rows["ours, scale 1"] = ours(records, run("one"), "--scale", "1")
        rows["floor, scale 1"] = floor(folder / "warm0", records, 1)
        same = all(
            (folder / "warm0" / path.relative_to(folder / name)).read_bytes() == path.read_bytes()
            for name in ("cold", "warm1", "warm2", "keep", "other", "two")
            for path in (folder / name).glob("*/slides/*.png")
        )
        if not same:
            sys.exit("the pictures of ours differ between runs")

        trace = []
        if args.many:
            many = folder / "many"
            copies = []
            for turn in range(args.many):
                for record in records:
                    name = f"{record['id']}-{turn}"
                    shutil.copytree(folder / "source" / record["id"], many / name)
                    deck = many / name / "deck.md"
                    deck.write_text(f"{deck.read_text()}\n<!-- {turn} -->\n")
                    copies.append({"id": name, "deck": {"path": f"{name}/deck.md"}})
            long = ours(copies, many, *at, trace=trace)

    first = next(iter(rows.values()))
    print("# What a rendered deck costs\n")
    print(f"Written by `make bench-render` on {os.cpu_count()} cores, Python {platform.python_version()}, Linux {platform.release().split('-')[0]}: {count} decks of {origin}, "
          f"{first['slides']} slides, drawn pictures. Device scale {SCALE} unless said, one picture per slide, the same Chromium and fonts for all; stock has no web fonts to wait for. "
          "CPU seconds are of the whole process tree, all decks together over their number; memory is the peak of the tree with shared pages counted once. "
          "The row in bold and the floor ran three times, and the run with the middle CPU time counts.\n")  # fmt: skip
    print(
        "| | CPU s per deck | times less than the first | wall s per deck | slides per wall s | peak MiB |\n|---|---:|---:|---:|---:|---:|"
    )
    for name, row in rows.items():
        peak = f"{row['peak']:.0f}" if row["peak"] else ""
        print(
            f"| {name} | {row['cpu'] / count:.2f} | {first['cpu'] / row['cpu']:.1f} | {row['wall'] / count:.2f} | {row['slides'] / row['wall']:.1f} | {peak} |"
        )
    print(
        "\nThe pictures of ours are the same bytes in every run of a scale: cold, warm and on two workers."
    )
    if trace:
        print(f"\n## {len(copies)} decks in one process\n")
        print(
            f"{long['cpu'] / len(copies):.2f} CPU s and {long['wall'] / len(copies):.2f} wall s per deck. Memory of the tree, the mean of each tenth of the time:\n"
        )
        tenths = [
            [
                size
                for second, size in trace
                if turn <= second / (trace[-1][0] + 1e-9) * 10 < turn + 1
            ]
            for turn in range(10)
        ]
        print("| " + " | ".join(f"{turn * 10} %" for turn in range(1, 11)) + " |\n|" + "---:|" * 10)
        print(
            "| "
            + " | ".join(f"{sum(part) / len(part):.0f}" if part else "" for part in tenths)
            + " |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reap"]:
        sys.exit(reap(sys.argv[2], sys.argv[3:]))
    sys.path.insert(0, str(ROOT / "lib"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
