#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual pages: well formed, and with every option that --help names, and no other."""

from support import *

PAGES = {
    "hamictl": [[]],
    "hamictl-run": [["run"]],
    "hamictl-region": [["region"]],
    "hamictl-resize": [["resize"]],
    "hamictl-top": [["top"]],
    "hamictl-config": [["config"]],
    "hamictl-simulate": [["simulate"]],
    "hamictl-why": [["why"]],
    "hamictl-sim": [["sim"], ["sim", "create"], ["sim", "show"], ["sim", "fault"], ["sim", "remove"]],
}
MANUALS = SOURCE / "docs/man"


class Manual(CtlTest):
    def test_pages_are_well_formed(self):
        if not shutil.which("man") or not shutil.which("groff"):
            self.skipTest("there is no man or no groff")
        for page in PAGES:
            with self.subTest(page=page):
                ended = subprocess.run(
                    ["man", "--warnings", "-l", MANUALS / f"{page}.1"], text=True, timeout=30,
                    env={**self.environment, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
                self.assertEqual((ended.returncode, ended.stderr), (0, ""))
                self.assertGreater(len(ended.stdout), 500)

    def test_scripts_that_install_or_take_an_hour_do_not_begin_by_mistake(self):
        for script in ("tools/setup", "tests/run"):
            for word, code in (("--help", 0), ("--hlep", 2)):
                ended = subprocess.run([SOURCE / script, word], text=True, timeout=10, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual((ended.returncode, ended.stdout), (code, ""))
                self.assertIn(f"{script}", ended.stderr)

    def test_scripts_say_which_path_is_wrong(self):
        trace = self.folder / "trace"
        trace.mkdir()
        for words, path in [
            (["demo/demo.py", "--build", self.folder], self.folder / "src/ctl/hamictl"),
            (["bench/packing.py", "--build", self.folder, "--trace", trace], self.folder / "bench/packing"),
            (["bench/packing.py", "--build", BUILD, "--trace", self.folder / "no"], self.folder / "no/nodes.csv"),
            (["bench/packing.py", "--build", BUILD, "--trace", trace], trace / "nodes.csv"),
        ]:
            with self.subTest(words=words):
                ended = subprocess.run([SOURCE / words[0], *words[1:]], text=True, timeout=30, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual((ended.returncode, ended.stdout), (2, ""))
                self.assertIn(f"error: there is no {path}", ended.stderr.splitlines()[-1])
        (trace / "nodes.csv").touch()
        words = [SOURCE / "bench/packing.py", "--build", BUILD, "--trace", trace, "--only", "cpu0", "--arrivals-only"]
        ended = subprocess.run(words, text=True, timeout=30, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn(f"error: there is no {trace}/pods_default.csv", ended.stderr)

    def test_every_page_is_here(self):
        self.assertEqual({path.stem for path in MANUALS.glob("*.1")}, set(PAGES))

    def test_every_page_says_the_exit_status(self):
        for page in PAGES:
            self.assertIn("\n.SH EXIT STATUS\n", (MANUALS / f"{page}.1").read_text(), page)

    def test_every_option_is_in_the_page_and_every_one_in_the_page_exists(self):
        for page, subcommands in PAGES.items():
            helped = set()
            for words in subcommands:
                shown = self.ctl(*words, "--help")
                self.assertEqual((shown.returncode, shown.stderr), (0, ""))
                entries = re.findall(r"^ {2,6}(?:-(.), )?--([a-z-]+)", shown.stdout, re.M)
                helped |= {(short, name) for short, name in entries}
            # Tagged paragraphs of the page: ".BR \-m ", " \-\-gpumem =..." or ".B \-\-usage".
            text = (MANUALS / f"{page}.1").read_text().replace("\\-", "-")
            text = text[text.index(".SH OPTIONS") :]
            text = text[: text.index(".SH", 5)]
            entries = re.findall(r'^\.TP\n\.BR? (?:-(.) ", " )?--([a-z-]+)', text, re.M)
            self.assertEqual({(short, name) for short, name in entries}, helped, page)

    def test_the_page_of_sim_has_every_option_of_the_driver(self):
        machine = self.folder / "any"
        self.assertEqual(self.ctl("sim", "create", machine).returncode, 0)
        shown = json.loads(self.ctl("sim", "show", "--json", machine).stdout)["driver"]
        text = (MANUALS / "hamictl-sim.1").read_text().replace("\\-", "-")
        section = text[text.index(".SH OPTIONS OF THE DRIVER") :]
        listed = re.findall(r"^\.BR ([a-z-]+)=", section[: section.index(".SH", 5)], re.M)
        self.assertEqual(sorted(listed), sorted(shown))

    def test_help_in_all_its_forms(self):
        self.assertEqual(self.ctl("help").stdout, self.ctl("--help").stdout)
        self.assertEqual(self.ctl("-h").stdout, self.ctl("--help").stdout)
        for word in ("help", "--help"):
            told = self.ctl("help", word)
            self.assertEqual((told.returncode, told.stdout), (0, self.ctl("--help").stdout))
        self.assertIn("  help ", self.ctl("--help").stdout)
        for word in ["run", "resize", "top", "sim", "config"]:
            self.assertIn(f"  {word} ", self.ctl("--help").stdout)
            self.assertEqual(self.ctl("help", word).stdout, self.ctl(word, "--help").stdout)
            self.assertEqual(self.ctl(word, "-h").stdout, self.ctl(word, "--help").stdout)
            self.assertTrue(self.ctl(word, "--help").stdout.startswith(f"Usage: hamictl {word}"))
        for verb in ["create", "show", "fault", "remove"]:
            self.assertEqual(self.ctl("help", "sim", verb).stdout, self.ctl("sim", verb, "--help").stdout)
            self.assertTrue(self.ctl("help", "sim", verb).stdout.startswith(f"Usage: hamictl sim {verb}"))
        self.assertEqual(self.ctl("help", "run", "env").stdout, self.ctl("run", "--help").stdout)
        self.assertRegex(self.ctl("--version").stdout, r"^hamictl \d+\.\d+\.\d+\n$")

    def test_what_is_no_subcommand_is_refused(self):
        for words, message in [
            (["dance"], 'there is no subcommand "dance"'),
            (["help", "dance"], 'there is no subcommand "dance"'),
            (["help", "sim", "dance"], '"dance" is none of create, show, fault and remove'),
            ([], "no subcommand given"),
            (["--dance"], "unrecognized option '--dance'"),
        ]:
            with self.subTest(words=words):
                ended = self.ctl(*words)
                self.assertIn(message, ended.stderr)
                self.assertEqual((ended.returncode, ended.stdout), (2, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
