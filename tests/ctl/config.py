#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hamictl config: what is wrong in a device configuration, and the manifests that follow from it, which are those that
deploy/ ships."""

from support import *

DEPLOY = SOURCE / "deploy"
MAP = """apiVersion: v1
kind: ConfigMap
metadata: {name: x}
data:
  other: |
    nvidia: {}
  device-config.yaml: |
    nvidia:
      resourceCountName: nvidia.com/gpu
      KEY: 1
  another: x
"""


def documents(text):
    """YAML documents without comments and empty lines, which are all that may differ."""
    lines = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return ("\n".join(lines) + "\n").split("---\n")


class Config(CtlTest):
    def config(self, verb, text):
        path = self.folder / "d.yaml"
        path.write_text(text)
        ended = self.ctl("config", verb, path)
        return ended.returncode, ended.stdout, ended.stderr.replace(f"{path}", "d.yaml")

    def refused(self, text):
        code, out, error = self.config("check", text)
        self.assertEqual((code, out), (1, ""))
        return error

    def rendered(self, text):
        code, out, error = self.config("render", text)
        self.assertEqual((code, error), (0, ""))
        return documents(out)

    def test_what_is_shipped_follows_from_what_is_shipped(self):
        ended = self.ctl("config", "render", DEPLOY / "device-config.yaml")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        webhook, scheduler, role, shares = documents(ended.stdout)
        self.assertEqual([webhook], documents((DEPLOY / "webhook.yaml").read_text()))
        self.assertEqual(scheduler, documents((DEPLOY / "scheduler.yaml").read_text())[0])
        self.assertIn(role, documents((DEPLOY / "rbac.yaml").read_text()))
        self.assertIn(shares, documents((DEPLOY / "policy.yaml").read_text()))

    def test_what_a_policy_refuses_it_names(self):
        messages = re.findall(r"^ +message: (?:>-\n +)?(.*)", "".join((DEPLOY / f).read_text() for f in ("policy.yaml", "other-agents.yaml")), re.M)
        self.assertGreater(len(messages), 10)
        for message in messages:
            self.assertRegex(message, r'^"?[a-z][A-Za-z./]+(, [a-z][A-Za-z.]+)*: ')

    def test_a_person_who_is_to_write_a_configuration_is_told_so(self):
        terminal, theirs = pty.openpty()
        for verb in ("check", "render"):
            process = subprocess.Popen([HAMICTL, "config", verb, "-"], env=self.environment, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.started.append(process)
            self.assertIn("standard input is a terminal: a device configuration is awaited there, up to Ctrl-D", process.stderr.readline())
            os.write(terminal, b"nvidia: {}\n\x04")
            self.assertIn("hamictl config: -: ", process.communicate(timeout=30)[1])
        os.close(terminal)
        os.close(theirs)

    def test_standard_input_is_read(self):
        shipped = (DEPLOY / "device-config.yaml").read_text()
        ended = self.ctl("config", "check", "-", given=shipped)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "-: NVIDIA (nvidia.com/gpu)\n", ""))
        self.assertEqual(self.ctl("config", "render", "-", given=shipped).stdout, self.ctl("config", "render", DEPLOY / "device-config.yaml").stdout)
        self.assertIn("-: more than 256 KiB", self.ctl("config", "check", "-", given="#" * (2 << 20)).stderr)

    def test_check_names_the_vendors(self):
        ended = self.ctl("config", "check", DEPLOY / "device-config.yaml")
        self.assertEqual(ended.stderr, "")
        self.assertRegex(ended.stdout, r"/deploy/device-config.yaml: NVIDIA \(nvidia.com/gpu\)\n$")

    def test_check_says_what_is_wrong_and_where(self):
        for text, error in [
            ("nvidia:\n  resourceCount: x\n", "d.yaml:2:3: resourceCount: no such key in nvidia"),
            ("amd:\n  resourceCount: x\n", "d.yaml:2:3: resourceCount: no such key in amd"),
            ("nvidia:\n  resourceCountName: 'a\"b'\n", "d.yaml:2:22: nvidia.resourceCountName: not a name"),
            ("nvidia:\n  resourceCountName: cpu\n", "d.yaml:2:22: nvidia.resourceCountName: without a domain"),
            ("nvidia:\n  resourceCountName: nvidia.com/\n", "d.yaml:2:22: nvidia.resourceCountName: no name behind the slash"),
            ("nvidia:\n  memoryImports: some\n", "d.yaml:2:18: nvidia.memoryImports: neither refuse nor allow"),
            ("nvidia: {}\n", "nvidia.resourceCountName: not given"),
            ("hygon: {}\n", "it has no section of a vendor that is served"),
            (MAP, "d.yaml:10:7: KEY: no such key in nvidia"),
            (MAP.replace("KEY: 1", "defaultCores: x"), "d.yaml:10:21: nvidia.defaultCores: not a whole number"),
            (MAP + "hygon:\n  resourceCountName: x\n", "d.yaml:12:1: hygon: it stands outside of the file in data"),
            (MAP + "  hygon:\n    resourceCountName: x\n", "d.yaml:12:3: hygon: it stands outside of the file in data"),
            ("nvidia: {resourceCountName: x.io/gpu}\nhygon: {resourceCountName: x.io/gpu}\n", "d.yaml: x.io/gpu is a resource of hygon and of nvidia"),
            ("nvidia: {resourceCountName: x.io/gpu, resourceMemoryName: x.io/gpu}\n", "d.yaml: nvidia: two keys of the section name the resource x.io/gpu"),
            (MAP.replace("ConfigMap", "Secret"), "d.yaml:2:7: kind: the manifest is no ConfigMap that holds a device configuration"),
            ("kind: [ConfigMap]\n", "d.yaml:1:7: kind: the manifest is no ConfigMap"),
            ("apiVersion: v1\n", "d.yaml:1:1: apiVersion: no such section"),
            (MAP.replace("device-config.yaml:", "config.yaml:"), ": device-config.yaml: the ConfigMap's data lacks it"),
            ("kind: ConfigMap\n", "d.yaml:1:1: device-config.yaml: the ConfigMap's data lacks it"),
            ('kind: ConfigMap\ndata:\n  device-config.yaml: "nvidia: {}"\n', 'd.yaml:3:23: device-config.yaml: not a block that begins with "|"'),
        ]:
            with self.subTest(text=text):
                self.assertIn(error, self.refused(text))

    def test_what_is_accepted_and_surely_not_meant_is_warned_of(self):
        cores, many = "counts as 100: each container that names memory and no cores gets a card", "more than 16 cards does not start"
        none = "names memory or cores and no number of cards gets no card"
        for key, warning in [
            ("defaultCores: 101", cores), ("defaultCores: 100", ""), ("defaultGPUNum: 17", many), ("defaultGPUNum: 16", ""),
            ("defaultGPUNum: 1", ""), ("defaultGPUNum: 0", none), ("defaultGPUNum:", ""), ("defaultCores: 0", ""),
        ]:  # fmt: skip
            with self.subTest(key=key):
                code, out, error = self.config("check", MAP.replace("KEY: 1", key))
                self.assertEqual((code, out), (0, f"{self.folder}/d.yaml: NVIDIA (nvidia.com/gpu)\n"))
                name, _, value = key.partition(": ")
                place = f"hamictl config: warning: d.yaml:10:{9 + len(name)}: nvidia.{name}: "
                self.assertEqual(error.startswith(place), bool(warning), error)
                self.assertIn(warning, error)
                self.assertEqual(error.count("\n"), bool(warning))
        both = "nvidia: {resourceCountName: x.io/gpu, defaultGPUNum: 0,\n  defaultCores: 200}\n"
        code, _, error = self.config("check", both)
        self.assertEqual((code, [line.split(": ")[2] for line in error.splitlines()]), (0, ["d.yaml:1:54", "d.yaml:2:17"]))
        self.assertEqual(self.rendered(both), self.rendered("nvidia: {resourceCountName: x.io/gpu}\n"))

    def test_a_warning_says_what_the_scheduler_does(self):
        """What the warnings say of pods, asked of the scheduler's own decisions."""
        card = {"id": "GPU-0", "index": 0, "count": 10, "devmem": 40960, "devcore": 100, "type": "NVIDIA A100", "mode": "hami-core", "health": True}
        node = {
            "kind": "Node", "metadata": {"name": "n", "uid": "n", "annotations": {"hami.io/node-nvidia-register": json.dumps([card])}},
            "status": {"allocatable": {"nvidia.com/gpu": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }  # fmt: skip
        limits = {"resources": {"limits": {"nvidia.com/gpumem": 3000}}}
        pods = [{"kind": "Pod", "metadata": {"name": name, "namespace": "d"}, "spec": {"containers": [{"name": "c", **limits}]}} for name in "ab"]
        for keys, placed in [("defaultGPUNum: 1", 2), ("defaultGPUNum: 1, defaultCores: 150", 1), ("defaultGPUNum: 0", 0)]:
            with self.subTest(keys=keys):
                (self.folder / "d.yaml").write_text(
                    "nvidia: {resourceCountName: nvidia.com/gpu, resourceMemoryName: nvidia.com/gpumem, resourceCoreName: nvidia.com/gpucores, %s}\n" % keys
                )
                given = json.dumps({"kind": "List", "items": [node, *pods]})
                ended = self.ctl("simulate", "--device-config", self.folder / "d.yaml", "-", given=given)
                self.assertEqual(ended.stdout.count("nvidia.com/gpumem]: asks for nothing without nvidia.com/gpu"), 0 if placed else 2)
                self.assertRegex(ended.stdout, rf"(?m)^{placed} of 2 pods that ask for devices have a node")

    def test_a_map_is_read_whatever_stands_behind_it(self):
        text = MAP.replace("      KEY: 1\n", "")
        for end in [text, text.replace("  another: x\n", ""), text.replace("  another: x\n", "").rstrip(), text + "  b: |\n    amd: 1\n"]:
            with self.subTest(text=end):
                self.assertEqual(self.config("check", end), (0, "d.yaml: NVIDIA (nvidia.com/gpu)\n".replace("d.yaml", str(self.folder / "d.yaml")), ""))

    def test_names_go_into_the_manifests(self):
        webhook, scheduler, role, shares = self.rendered(
            "nvidia: {resourceCountName: acme.example/gpu, resourceMemoryName: acme.example/mem, resourceCoreName: other.example/c,\n"
            "         resourcePriorityName: other.example/p}\n"
            "amd: {resourceCountName: amd.com/gpu}\n"
        )
        self.assertEqual(webhook.count('r.startsWith("acme.example/") || r.startsWith("other.example/") || r.startsWith("amd.com/")'), 2)
        listed = '["acme.example/gpu",\n        "acme.example/mem",\n        "other.example/c",\n        "amd.com/gpu"]\n'
        self.assertEqual(shares.count(listed), 2, shares)
        self.assertNotIn("nvidia.com", webhook)
        self.assertEqual(
            re.findall(r"- name: (.*)\n            ignoredByScheduler: true\n", scheduler),
            ["acme.example/gpu", "acme.example/mem", "other.example/c", "other.example/p", "amd.com/gpu"],
        )

    def test_a_webhook_that_changes_every_pod_is_asked_about_every_pod(self):
        for more in ["overwriteEnv: true", "gpuCorePolicy: force"]:
            webhook = self.rendered("nvidia: {resourceCountName: a.b/c, %s}\n" % more)[0]
            self.assertNotIn("asks-for-a-device", webhook)
            self.assertIn("is-no-mirror-of-a-static-pod", webhook)

    def test_a_wrong_command_line(self):
        for words, error in [
            ([], "say what to do"), (["mend", "x"], "neither check nor render"), (["check"], "no FILE"),
            (["check", "a", "b"], '"b" is too much'),
        ]:
            ended = self.ctl("config", *words)
            self.assertEqual(ended.returncode, 2)
            self.assertIn(error, ended.stderr)
        self.assertIn("No such file", self.ctl("config", "check", "/nonexistent").stderr)


unittest.main()
