#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hamictl simulate and hamictl why: the scheduler's answers about objects in files."""

import pty

from support import *

CONFIG = SOURCE / "tests/data/vectors/config-default.yaml"


def node(name, cards=2, memory=40960):
    register = [
        {"id": f"GPU-{name}-{i}", "index": i, "count": 10, "devmem": memory, "devcore": 100, "type": "NVIDIA A100", "mode": "hami-core", "health": True}
        for i in range(cards)
    ]
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "annotations": {"hami.io/node-nvidia-register": json.dumps(register)}},
        "status": {"allocatable": {"nvidia.com/gpu": str(10 * cards)}, "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


def dcu_node():
    register = "DCU-1,10,32768,100,DCU-Z100,0,true:"
    return {"kind": "Node", "metadata": {"name": "d", "uid": "d", "annotations": {"hami.io/node-dcu-register": register}}, "status": {"allocatable": {"hygon.com/dcunum": "4"}}}


def pod(name, memory, gpus=1, namespace="default", on=None, holds=None):
    limits = {"nvidia.com/gpu": gpus, "nvidia.com/gpumem": memory}
    thing = {"kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}
    if on:
        thing["spec"]["nodeName"] = on
        thing["status"] = {"phase": "Running"}
        thing["metadata"]["annotations"] = {"hami.io/vgpu-node": on, "hami.io/vgpu-devices-allocated": holds}
    return thing


QUOTA = {"kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "small"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "5000"}}}
CLUSTER = {"kind": "List", "items": [node("n1"), node("n2", 1, 20000), pod("old", 30000, on="n1", holds="GPU-n1-0,NVIDIA,30000,50:;"), QUOTA]}
DEPLOYMENT = """
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: c
        resources: {limits: {nvidia.com/gpumem: 15000}}
---
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: c}]}
"""


class Simulate(CtlTest):
    def setUp(self):
        super().setUp()
        self.cluster = self.write("cluster.json", CLUSTER)

    def write(self, name, thing):
        path = self.folder / name
        path.write_text(thing if isinstance(thing, str) else json.dumps(thing))
        return str(path)

    def answers(self, *words):
        ended = self.ctl("simulate", "--json", *words)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return {(a["namespace"], a["name"]): a for a in json.loads(ended.stdout)}

    def test_pods_are_placed_in_their_order(self):
        answers = self.answers(self.cluster, self.write("web.yaml", DEPLOYMENT))
        self.assertEqual(
            {name: a["node"] for name, a in answers.items()},
            {("team", "web-1"): "n1", ("team", "web-2"): "n1", ("team", "web-3"): "n2"},
            "the webhook adds a card to a share of memory; what was placed before counts; who asks for nothing is left out",
        )
        self.assertEqual(answers["team", "web-1"]["devices"], "GPU-n1-1,NVIDIA,15000,0:;")

    def test_policies_are_the_schedulers(self):
        pods = [self.write(f"{name}.json", pod(name, 1000)) for name in ("one", "two")]
        where = lambda *words: [a["node"] for a in self.answers(self.cluster, *pods, *words).values()]
        self.assertEqual(where(), ["n1", "n1"])
        self.assertEqual(where("--node-scheduler-policy=spread"), ["n2", "n2"])
        bad = self.ctl("simulate", "-n", "wide", self.cluster)
        self.assertEqual(bad.returncode, 2)
        self.assertTrue(bad.stderr.startswith('hamictl simulate: --node-scheduler-policy: "wide" is none of binpack, spread, scarcity\n'), bad.stderr)
        for words in (["simulate", "-g", "wide", self.cluster], ["why", "-g", "wide", "-f", self.cluster, "web"]):
            bad = self.ctl(*words)
            self.assertEqual(bad.returncode, 2)
            self.assertIn('--gpu-scheduler-policy: "wide" is not made of binpack, spread', bad.stderr)

    def test_policies_are_compared(self):
        pods = [pod(f"{size}-{i}", size) for i in range(6) for size in (8000, 20000)] + [pod("pair", 35000, gpus=2)]
        ended = self.ctl("simulate", "--json", "--policy=scarcity,binpack,spread", "-", self.write("pods.json", {"items": pods}), given=json.dumps(CLUSTER))
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        results = {result["policy"]: result for result in json.loads(ended.stdout)}
        self.assertEqual(list(results), ["scarcity", "binpack", "spread"])
        for result in results.values():
            self.assertEqual(result["placed"] + result["refused"], len(pods))
            self.assertTrue(0.5 < result["allocated"] <= 1, result)
            self.assertIn("1x20/40% cpu=0 memory=0Gi", result["fillable"])
        self.assertGreaterEqual(results["scarcity"]["allocated"], results["spread"]["allocated"])
        table = self.ctl("simulate", "-p", "scarcity,spread", self.cluster).stdout.splitlines()
        self.assertEqual(table[0].split()[:4], ["POLICY", "PLACED", "REFUSED", "ALLOCATED"])
        self.assertEqual([line.split()[0] for line in table[1:3]], ["scarcity", "spread"])
        bad = self.ctl("simulate", "-p", "scarcity,wide", self.cluster)
        self.assertEqual(bad.returncode, 2)
        self.assertTrue(bad.stderr.startswith('hamictl simulate: --policy: "wide" is none of binpack, spread, scarcity\n'), bad.stderr)
        many = self.ctl("simulate", "-p", ",".join(["spread"] * 5), self.cluster)
        self.assertEqual(many.returncode, 2)
        self.assertIn("--policy: more than 4 policies", many.stderr)

    def test_a_class_that_no_card_can_have_is_said_so(self):
        pods = self.write("pods.json", {"items": [pod(f"large-{i}", 500000) for i in range(3)]})
        told = json.loads(self.ctl("simulate", "--json", "-p", "scarcity", self.cluster, pods).stdout)[0]
        self.assertEqual(told["fillable"].get("1x no such card cpu=0 memory=0Gi"), 0, told)
        text = self.ctl("why", "--node-scheduler-policy=scarcity", "-f", self.cluster, "-f", pods, "default/large-0").stdout
        self.assertIn("Its class is 1x no such card cpu=0 memory=0Gi", text)

    def test_a_comparison_has_no_order_of_its_own(self):
        """Small pods before large ones are another cluster than a mix of them: the means of random orders are compared."""
        pods = [pod(f"{size}-{i}", size) for size in (8000, 20000, 35000) for i in range(6)]
        name = self.write("pods.json", {"items": pods})
        backwards = self.write("backwards.json", {"items": pods[::-1]})
        tell = lambda *words: json.loads(self.ctl("simulate", "--json", "-p", "binpack", *words, self.cluster).stdout)[0]
        ordered, reversed_order = (tell("--in-order", "-f", file) for file in (name, backwards))
        self.assertNotEqual(ordered["placed"], reversed_order["placed"])
        self.assertTrue(min(ordered["placed"], reversed_order["placed"]) <= tell("-f", name)["placed"] <= max(ordered["placed"], reversed_order["placed"]))
        self.assertEqual(tell("-f", name), tell("-f", name), "the same each time")

    def test_the_first_pod_goes_where_why_says_that_it_costs_least(self):
        """What exists is learned before the first decision."""
        things = [node(f"m{i}", 4) for i in range(6)]
        for i in range(30):
            on, card, memory = i % 6, i * 7 % 4, (6000, 18000, 30000)[i % 3]
            things.append(pod(f"b{i}", memory, on=f"m{on}", holds=f"GPU-m{on}-{card},NVIDIA,{memory},0:;"))
        cluster, waiting = self.write("some.json", {"items": things}), self.write("one.json", pod("some", 9000))
        told = json.loads(self.ctl("why", "--json", "--all", "-n", "scarcity", "-f", cluster, "-f", waiting, "some").stdout)
        costs = {n["name"]: n["cost"] for n in told["nodes"] if "cost" in n}
        self.assertGreater(len(set(costs.values())), 1, costs)
        (decided,) = json.loads(self.ctl("simulate", "--json", "-n", "scarcity", cluster, waiting).stdout)
        self.assertEqual(costs[decided["node"]], min(costs.values()), (costs, decided))

    def test_why_tells_price_and_cost(self):
        waiting = self.write("some.json", pod("some", 10000))
        told = json.loads(self.ctl("why", "--json", "-n", "scarcity", "-f", self.cluster, "-f", waiting, "some").stdout)
        self.assertEqual(told["class"]["name"], "1x25/50% cpu=0 memory=0Gi")
        costs = {entry["name"]: entry.get("cost") for entry in told["nodes"]}
        self.assertTrue(all(cost is not None and cost >= 0 for cost in costs.values()), costs)
        text = self.ctl("why", "-n", "scarcity", "-f", self.cluster, "-f", waiting, "some").stdout
        self.assertIn("Its class is 1x25/50% cpu=0 memory=0Gi, which is new: no such pod is among those that run, so it has no price yet.\n", text)
        self.assertIn("fits, costs", text)
        self.assertFalse(told["class"]["known"])
        same = self.write("same.json", pod("same", 10000, on="n1", holds="GPU-n1-1,NVIDIA,10000,0:;"))
        text = self.ctl("why", "-n", "scarcity", "-f", self.cluster, "-f", same, "-f", waiting, "some").stdout
        self.assertRegex(text, r"Its class is 1x25/50% cpu=0 memory=0Gi: price \S+, \S+ % of what arrives, \d+ more would fit\.\n")

    def test_why_shows_the_cheapest_first(self):
        free = [node(f"a{i}", 2) for i in range(12)] + [node("z", 1)]
        held = [pod(f"pair-{i}", 40960, gpus=2, on=f"a{i}", holds=f"GPU-a{i}-0,NVIDIA,40960,0:GPU-a{i}-1,NVIDIA,40960,0:;") for i in range(4)]
        held += [pod(f"half-{i}", 20480, on="a4", holds="GPU-a4-0,NVIDIA,20480,0:;") for i in range(2)]
        words = ("-n", "scarcity", "-f", self.write("many.json", {"items": free + held + [pod("some", 20480)]}), "some")
        costs = {n["name"]: n["cost"] for n in json.loads(self.ctl("why", "--json", *words).stdout)["nodes"] if n["fits"]}
        self.assertGreater(len(set(costs.values())), 1, costs)
        shown = [line.split() for line in self.ctl("why", *words).stdout.splitlines() if "fits, costs" in line]
        self.assertEqual(costs[shown[0][0]], min(costs.values()), costs)
        self.assertEqual([line[0] for line in shown], sorted(costs, key=lambda name: (costs[name], name))[: len(shown)])

    def test_refusals_and_denials_say_why(self):
        things = [pod("big", 50000), pod("beyond", 5001, namespace="small"), pod("odd", 1000, gpus=-1)]
        answers = self.answers(self.cluster, self.write("pods.json", {"items": things}))
        self.assertEqual(answers["default", "big"]["reason"], "no available node, 2 nodes do not meet: 3/3 CardInsufficientMemory")
        self.assertEqual(answers["small", "beyond"]["reason"], "denied: exceeded quota: nvidia.com/gpumem in namespace small: 5001 asked > 5000")
        self.assertTrue(answers["default", "odd"]["reason"].startswith("denied: spec.containers[0].resources.limits[nvidia.com/gpu]"), answers)
        self.assertTrue(all(a["node"] is None for a in answers.values()))

    def test_a_pod_that_names_a_node_is_denied(self):
        """One that is to be made: what an API server has made, or what was given devices, counts."""
        made, given, plain = (pod(name, 1000) for name in ("made", "given", "plain"))
        for one in (made, given, plain):
            one["spec"]["nodeName"] = "n1"
        plain["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 1}}
        given["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": "GPU-n1-1,NVIDIA,1000,0:;"}
        seen = {"uid": "u"}, {"status": {"phase": "Pending"}}
        written = [made | {"metadata": made["metadata"] | {"name": "uid"} | seen[0]}, made | {"metadata": {"name": "phase"}} | seen[1]]
        words = (self.cluster, self.write("named.json", {"items": [made, given, plain, *written]}))
        self.assertEqual({name: a["reason"] for (_, name), a in self.answers(*words).items()}, {"made": "denied: pod has node assigned"})
        top = json.loads(self.ctl("top", "--cluster", "--json", *words).stdout)
        self.assertEqual({p["name"] for p in top["pods"]}, {"old", "given"})
        why = self.ctl("why", "-f", words[0], "-f", words[1], "made")
        self.assertEqual((why.returncode, why.stderr), (1, "hamictl why: the webhook denies it: pod has node assigned\n"))

    def test_what_names_no_namespace_is_in_the_default_one(self):
        bound, waiting = pod("bound", 4000, on="n1", holds="GPU-n1-0,NVIDIA,4000,0:;"), pod("waiting", 2000)
        quota = {"kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "35000"}}}
        for one in (bound, waiting):
            del one["metadata"]["namespace"]
        words = (self.cluster, self.write("plain.json", {"items": [quota, bound, waiting]}))
        answers = self.answers(*words)
        self.assertIn("ResourceQuotaNotFit", answers["default", "waiting"]["reason"])
        top = json.loads(self.ctl("top", "--cluster", "--json", *words).stdout)
        self.assertEqual([(q["used"], q["limit"]) for q in top["quotas"] if q["namespace"] == "default"], [(34000, 35000)], "with old, which names it")
        self.assertIn(("default", "bound"), [(p["namespace"], p["name"]) for p in top["pods"]])

    def test_every_vendor_is_simulated(self):
        dcu = dcu_node()
        wants = pod("dcu", 0)
        wants["spec"]["containers"][0]["resources"]["limits"] = {"hygon.com/dcunum": 1, "hygon.com/dcumem": 1000}
        words = (self.write("d.json", dcu), self.write("p.json", wants))
        nobodys = self.ctl("simulate", "--json", *words)
        self.assertEqual((nobodys.returncode, json.loads(nobodys.stdout)), (0, []), "without a configuration its resources are nobody's")
        self.assertIn("limits[hygon.com/dcumem]: no section of the device configuration serves it, and no node", nobodys.stderr)
        answers = self.answers("-c", str(CONFIG), *words)
        self.assertIn("default", {namespace for namespace, _ in answers})
        both = node("n9") | {}
        both["metadata"]["annotations"] |= dcu["metadata"]["annotations"]
        both["status"] = dcu["status"]
        wants["spec"]["containers"][0]["resources"]["limits"]["hygon.com/dcumem"] = 40000
        told = json.loads(self.ctl("why", "--json", "-c", str(CONFIG), "-f", self.write("both.json", both), "-f", self.write("big.json", wants), "dcu").stdout)
        self.assertEqual([d["uuid"] for n in told["nodes"] for d in n["devices"]], ["DCU-1"], "another vendor's cards on the node are not told of")

    def test_a_refusal_and_why_show_the_amount_that_was_asked_for(self):
        bounds = {"kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "bound"}, "spec": {"hard": {"limits.nvidia.com/gpumem": 5000, "limits.hygon.com/dcumem": 5000}}}
        cluster = self.write("both.json", {"items": [node("n"), dcu_node(), bounds]})
        for count, memory, asked in (("nvidia.com/gpu", "nvidia.com/gpumem", 50000000), ("hygon.com/dcunum", "hygon.com/dcumem", 3000000000)):
            for namespace in ("bound", "free"):
                huge = pod("huge", 0, namespace=namespace)
                huge["spec"]["containers"][0]["resources"]["limits"] = {count: 1, memory: asked}
                told = self.ctl("why", "--json", "-c", str(CONFIG), "-f", cluster, "-f", self.write("huge.json", huge), f"{namespace}/huge")
                if namespace == "bound":
                    self.assertIn(f"exceeded quota: {memory} in namespace bound: {asked} asked > 5000", told.stderr)
                else:
                    self.assertEqual({d["asked"]["memory_mib"] for n in json.loads(told.stdout)["nodes"] for d in n["devices"]}, {asked})

    def test_why_shows_the_nearest_first(self):
        waiting = self.write("big.json", pod("big", 35000, gpus=2))
        ended = self.ctl("why", "-f", self.cluster, "-f", waiting, "big")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        lines = [line.split() for line in ended.stdout.splitlines()]
        self.assertEqual(lines[0], "It fits on none of 2 nodes.".split())
        self.assertEqual(lines[2], ["n1", "GPU-n1-0", "35000/10960", "0/50", "1/9", "CardInsufficientMemory"])
        self.assertEqual(lines[3], ["GPU-n1-1", "35000/40960", "0/100", "1/10", "would", "do"])
        self.assertEqual(lines[4][0], "n2")
        told = json.loads(self.ctl("why", "--json", "-f", self.cluster, "-f", waiting, "default/big").stdout)
        self.assertEqual([(n["name"], n["fits"]) for n in told["nodes"]], [("n1", False), ("n2", False)])

    def test_why_reads_what_kubectl_prints(self):
        things = {"apiVersion": "v1", "items": CLUSTER["items"] + [pod("p", 1000, namespace="team")]}
        ended = self.ctl("why", "-f", "-", "team/p", given=json.dumps(things))
        self.assertIn("It fits on 2 of 2 nodes.", ended.stdout)
        self.assertTrue(ended.stdout.endswith("not looked at: kube-scheduler's event FailedScheduling names those.\n"), ended.stdout)

    def test_files_without_nodes_are_no_cluster(self):
        settings = self.write("settings.yaml", "kind: ConfigMap\ndata: {}\n")
        left = f"{settings}: ConfigMap is left out, as all of its kind: only Nodes, ResourceQuotas, Pods and what has pods in its spec.template count\n"
        said = "no Node was read; `kubectl get nodes,pods,resourcequotas -A -o json` prints them, and a device configuration is given by --device-config\n"
        for words in (("top", "--cluster"), ("simulate",), ("why", "p", "-f")):
            ended = self.ctl(*words, settings)
            self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (1, "", f"hamictl {words[0]}: {left}hamictl {words[0]}: {said}"))
        view = self.write("view.json", {"nodes": [], "reserved": []})
        self.assertEqual(self.ctl("top", "--cluster", view).stdout.splitlines()[-1], "No pod holds a device.")
        self.assertIn("take /debug/objects", self.ctl("why", "-f", view, "p").stderr)

    def test_an_answer_that_cannot_be_written_is_a_failure(self):
        for words in (["simulate", self.cluster], ["simulate", "--json", self.cluster], ["config", "render", SOURCE / "deploy/device-config.yaml"], ["sim", "create", self.folder / "m"], ["top", "--cluster", self.cluster]):
            with open("/dev/full", "w") as full:
                ended = subprocess.run([HAMICTL, *map(str, words)], env=self.environment, stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(ended.returncode, 1, words)
            self.assertRegex(ended.stderr, "cannot write.*: No space left on device\n$")

    def test_letters_mean_the_same_in_every_command(self):
        for words in (("top", "--cluster"), ("simulate",), ("why", "old", "-f")):
            ended = self.ctl(words[0], "-c", "/nowhere", *words[1:], self.cluster)
            self.assertEqual((ended.returncode, ended.stdout), (1, ""), words)
            self.assertIn("/nowhere: ", ended.stderr)

    def test_the_webhooks_warnings_are_printed(self):
        card = {"kind": "Node", "metadata": {"name": "mlu", "uid": "m"}, "status": {k: {"cambricon.com/mlu.smlu.vcore": "200", "cambricon.com/mlu.smlu.vmemory": "192"} for k in ("capacity", "allocatable")}}
        wants = [pod(name, 0) for name in ("a", "b")]
        for one in wants:
            one["spec"]["containers"][0]["resources"]["limits"] = {"cambricon.com/vmlu": 1}
        ended = self.ctl("simulate", "-c", str(CONFIG), self.write("mlu.json", {"items": [card, *wants]}))
        said = "hamictl simulate: pod default/a: spec.containers[0].resources.limits[cambricon.com/mlu.smlu.vcore]: is missing; Cambricon's agent will not start the pod\n"
        self.assertEqual((ended.returncode, ended.stderr), (0, said), "once for pods that are alike")

    def test_the_cluster_is_shown(self):
        ended = self.ctl("top", "--cluster", self.cluster)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        rows = [line.split() for line in ended.stdout.splitlines()]
        self.assertIn(["n1", "GPU-n1-0", "NVIDIA", "A100", "ok", "30000/40960", "50/100", "1/10"], rows)
        self.assertIn(["GPU-n1-1", "NVIDIA", "A100", "ok", "0/40960", "0/100", "0/10"], rows)
        self.assertIn(["default", "old", "bound", "n1", "GPU-n1-0", "30000", "50"], rows)
        self.assertIn(["small", "nvidia.com/gpumem", "0/5000"], rows)
        view = self.ctl("top", "--cluster", "--json", self.cluster).stdout
        self.assertEqual([n["name"] for n in json.loads(view)["nodes"]], ["n1", "n2"])
        self.assertEqual(self.ctl("top", "--cluster", given=view).stdout, ended.stdout, "what /debug/view says is shown alike")
        self.assertEqual(self.ctl("top", "--cluster", "--watch", self.cluster).returncode, 2)

    def test_why_says_how_many_devices_a_node_has_too_few(self):
        ended = self.ctl("why", "-f", self.cluster, "-f", self.write("many.json", pod("many", 1000, gpus=5)), "many")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertIn("NodeInsufficientDevice: 5 asked, 2 here", ended.stdout)

    def test_why_names_the_mistakes_that_are_made_most(self):
        for memory, said in (("3Gi", True), (35000, False)):
            ended = self.ctl("why", "-f", self.cluster, "-f", self.write("gi.json", pod("gi", memory)), "gi")
            self.assertEqual("3 GiB are 3072" in ended.stdout, said, memory)
        misspelt = pod("typo", 1000)
        misspelt["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpumemory": 1000}
        ended = self.ctl("why", "-f", self.cluster, "-f", self.write("typo.json", misspelt), "typo")
        self.assertEqual((ended.returncode, ended.stdout), (1, ""))
        self.assertIn("pod typo asks for no device: no container's limits ask for one that is served; is a name misspelt", ended.stderr)

    def test_a_resource_that_nobody_has_is_warned_of(self):
        """kube-scheduler finds no node for such a pod, whatever devices it would be given."""
        typo = pod("typo", 3000)
        mistaken = {"resources": {"requests": {"nvidia.com/gpumme": 3000, "other.com/fpga": "1", "x.kubernetes.io/y": 1, "example.com/none": 0, "hugepages-2Mi": "2Mi", "cpu": 1}}}
        typo["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpumme": 3000}
        typo["spec"]["initContainers"] = [mistaken]
        other = node("n3")
        other["status"]["capacity"] = {"other.com/fpga": "2"}
        words = ("-f", self.cluster, "-f", self.write("other.json", other), "-f", self.write("typo.json", {"items": [typo, typo | {"metadata": {"name": "alike"}}]}))
        said = "no section of the device configuration serves it, and no node that was read has it; is the name misspelt?\n"
        told = [f"pod default/typo: spec.initContainers[0].resources.requests[nvidia.com/gpumme]: {said}", f"pod default/typo: spec.containers[0].resources.limits[nvidia.com/gpumme]: {said}"]
        why = self.ctl("why", *words, "typo")
        self.assertEqual((why.returncode, why.stderr), (0, "".join(f"hamictl why: {line}" for line in told)))
        self.assertIn("It fits on 3 of 3 nodes.", why.stdout)
        simulated = self.ctl("simulate", *words)
        self.assertEqual((simulated.returncode, simulated.stderr), (0, "".join(f"hamictl simulate: {line}" for line in told)), "once for pods that are alike")
        compared = self.ctl("simulate", "--policy=binpack,spread", *words)
        self.assertEqual((compared.returncode, compared.stderr.count("initContainers[0]")), (0, 1), "once for all orders and policies")
        del other["status"]["capacity"]
        self.write("other.json", other)
        self.assertIn("requests[other.com/fpga]: no section", self.ctl("why", *words, "typo").stderr)

    def test_a_misspelt_annotation_is_warned_of(self):
        for key, meant in (
            ("nvidia.com/use-gpu-uuid", "nvidia.com/use-gpuuuid"), ("nvidia.com/no-use-gpuuid", "nvidia.com/nouse-gpuuuid"), ("nvidia.com/vgpumode", "nvidia.com/vgpu-mode"),
            ("nvidia.com/use-uuid", "nvidia.com/use-gpuuuid"), ("hami.io/gpu-schedule-policy", "hami.io/gpu-scheduler-policy"), ("hami.io/gpu-scheduler-policys", "hami.io/gpu-scheduler-policy"),
            ("hami.io/node-schedular-policy", "hami.io/node-scheduler-policy"), ("hami.io/device-scoring-weight", "hami.io/device-scoring-weights"),
            ("hami.io/node-scheduler-policy", None), ("hami.io/gpu-scheduler-policy", None), ("hami.io/other", None),
            ("nvidia.com/use-gpuuuid", None), ("nvidia.com/nouse-gpuuuid", None), ("nvidia.com/other", None), ("amd.com/use-gpuuuid", None),
        ):  # fmt: skip
            wants = pod("p", 1000)
            wants["metadata"]["annotations"] = {key: "hami-core" if "mode" in key else "spread" if "policy" in key else "GPU-n1-1"}
            said = f"pod default/p: metadata.annotations[{key}]: nothing reads it, and the pod is placed as if it were not there; is {meant} meant?\n" if meant else ""
            for words in (("simulate",), ("why", "p", "-f")):
                ended = self.ctl(*words, self.cluster, "-f", self.write("p.json", wants))
                self.assertEqual((ended.returncode, ended.stderr), (0, said and f"hamictl {words[0]}: {said}"), key)

    def test_a_share_that_is_not_given_as_it_stands_is_told_of(self):
        """A number of devices that the webhook does not add: the pod is another scheduler's, or of a vendor without a default; or one of 0."""
        elsewhere, forgotten, zero, hint = pod("elsewhere", 10), pod("forgotten", 0), pod("zero", 10, gpus=0), pod("hint", 0)
        elsewhere["spec"]["schedulerName"] = "other"
        elsewhere["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpumem": 10}
        forgotten["spec"]["containers"][0]["resources"]["limits"] = {"hygon.com/dcumem": 10}
        hint["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/priority": 0}
        said = {
            "elsewhere": "spec.schedulerName: the pod asks for a share of a device, which only hami-scheduler gives; placed by another scheduler it gets none",
            "forgotten": "spec.containers[0].resources.limits[hygon.com/dcumem]: asks for nothing without hygon.com/dcunum in the same container",
            "zero": "spec.containers[0].resources.limits[nvidia.com/gpumem]: asks for nothing beside nvidia.com/gpu: 0 in the same container",
            "hint": "spec.containers[0].resources.limits[nvidia.com/priority]: asks for nothing without nvidia.com/gpu in the same container",
        }
        words = ("-c", str(CONFIG), "-f", self.cluster, "-f", self.write("pods.json", {"items": [elsewhere, forgotten, zero, hint]}))
        for name, text in said.items():
            why = self.ctl("why", *words, name)
            self.assertEqual((why.returncode, why.stderr), (1, f"hamictl why: pod default/{name}: {text}\nhamictl why: pod {name} gets no device as it is: see the warning above\n"))
        answers = json.loads(self.ctl("simulate", "--json", *words).stdout)
        self.assertEqual({a["name"]: (a["node"], a["reason"]) for a in answers}, {name: (None, f"no device as it is: {text}") for name, text in said.items()})

    def test_another_schedulers_pod_is_not_placed(self):
        theirs = pod("theirs", 1000)
        theirs["spec"]["schedulerName"] = "volcano"
        words = ("-f", self.cluster, "-f", self.write("theirs.json", theirs))
        text = "spec.schedulerName: the pod asks for a share of a device, which only hami-scheduler gives; placed by another scheduler it will not start"
        ended = self.ctl("simulate", "--json", *words)
        self.assertEqual((ended.returncode, ended.stderr), (0, f"hamictl simulate: pod default/theirs: {text}\n"))
        self.assertEqual([(a["node"], a["reason"]) for a in json.loads(ended.stdout)], [(None, f"no device as it is: {text}")])
        why = self.ctl("why", *words, "theirs")
        self.assertEqual((why.returncode, why.stderr.splitlines()[-1]), (1, "hamictl why: pod theirs gets no device as it is: see the warning above"))
        compared = json.loads(self.ctl("simulate", "--policy=binpack", "--json", *words).stdout)
        self.assertEqual((compared[0]["placed"], compared[0]["refused"]), (0, 0))
        self.assertEqual(self.answers("--scheduler-name=volcano", *words)["default", "theirs"]["node"], "n1")

    def test_a_person_who_is_to_write_objects_is_told_so(self):
        terminal, theirs = pty.openpty()
        try:
            for words in (["why", "p"], ["top", "--cluster"], ["simulate", "-"]):
                process = subprocess.Popen([HAMICTL, *words], env=self.environment, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.started.append(process)
                self.assertIn("standard input is a terminal", process.stderr.readline())
                os.write(terminal, b"\x04")
                self.assertIn("no Node was read", process.communicate(timeout=30)[1])
        finally:
            os.close(terminal)
            os.close(theirs)

    def test_why_about_no_pod(self):
        for name, said in (("", "no POD given"), ("team/", '"team/" names no POD')):
            ended = self.ctl("why", "-f", self.cluster, name)
            self.assertEqual(ended.returncode, 2)
            self.assertTrue(ended.stderr.startswith(f"hamictl why: {said}\n"), ended.stderr)

    def test_why_about_a_pod_that_does_not_wait(self):
        over = pod("over", 1000)
        over["status"] = {"phase": "Succeeded"}
        more = self.write("over.json", over)
        said = (("nope", "pod nope is not among the pods that were read (2)"), ("old", "pod old has the node n1 already"), ("default/over", "has ended"), ("other/old", "not among"))
        for name, text in said:
            ended = self.ctl("why", "-f", self.cluster, "-f", more, name)
            self.assertEqual(ended.returncode, 1)
            self.assertIn(text, ended.stderr)

    def test_what_is_there_twice_is_an_error(self):
        nodes, one = self.write("nodes.yaml", node("n1")), self.write("one.yaml", pod("small", 1000))
        bound = self.write("bound.json", pod("small", 1000, on="n1", holds="GPU-n1-0,NVIDIA,1000,0:;"))
        both = self.write("both.yaml", {"items": [pod("web-1", 1000, namespace="team")]})
        web = self.write("web.yaml", DEPLOYMENT)
        for words, what in (
            ((nodes, one, one), f"pod default/small is there twice, in {one}"),
            ((nodes, bound, one), f"pod default/small is there twice, in {bound} and in {one}"),
            ((nodes, web, both), f"pod team/web-1 is there twice, in {web} and in {both}"),
            ((nodes, one, nodes), f"node n1 is there twice, in {nodes}"),
        ):
            ended = self.ctl("simulate", *words)
            self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (1, "", f"hamictl simulate: {what}\n"))
        over = pod("small", 1000)
        over["status"] = {"phase": "Failed"}
        self.assertEqual(self.ctl("simulate", nodes, self.write("over.json", over), one).stderr, "", "a pod that has ended may be tried again")

    def test_what_is_left_out_is_told(self):
        daemon = {"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {"template": {"spec": pod("", 1000)["spec"]}}}
        several = self.write("several.json", {"items": [{"kind": "Podd", "metadata": {"name": "a"}}, {"kind": "Podd", "metadata": {"name": "b"}}, {"kind": "CronJob"}, daemon]})
        none, empty = self.write("none.yaml", "just a text\n"), self.write("empty.yaml", "\n")
        count = "as all of its kind: only Nodes, ResourceQuotas, Pods and what has pods in its spec.template count"
        told = [
            f"{several}: Podd a is left out, {count}", f"{several}: CronJob is left out, {count}",
            f"{several}: DaemonSet agent counts as one pod, not as one on each node",
            f"{none}: what has no kind is left out: it is no Kubernetes object", f"{empty}: there is no object in it",
        ]  # fmt: skip
        told = [f"hamictl simulate: {line}" for line in told]
        ended = self.ctl("simulate", self.cluster, several, none, empty)
        self.assertEqual((ended.returncode, ended.stderr.splitlines()), (0, told))
        self.assertIn("1 of 1 pods", ended.stdout)
        self.assertEqual(self.ctl("simulate", "--policy=binpack,spread", self.cluster, several, none, empty).stderr.splitlines(), told, "once for all orders")

    def test_why_names_the_pod_that_may_be_meant(self):
        cluster = self.write("all.json", {"items": CLUSTER["items"] + [pod("train", 1000)]})
        words = ("-f", cluster, "-f", self.write("web.yaml", DEPLOYMENT))
        for name, meant in (("team/web", "team/web-1"), ("web-2", "team/web-2"), ("trian", "default/train"), ("team/train", "default/train")):
            ended = self.ctl("why", *words, name)
            self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (1, "", f"hamictl why: pod {name} is not among the pods that were read (6); is {meant} meant?\n"))
        self.assertTrue(self.ctl("why", *words, "tea/web").stderr.endswith("were read (6)\n"))

    def test_files_that_cannot_be_read(self):
        for text, said in (("a: [", "bad.yaml:2:1:"), ('{"items": [{"kind": "Node"', "bad.yaml: "), ("kind: Node\nmetadata: 7\n", "metadata")):
            ended = self.ctl("simulate", self.write("bad.yaml", text + "\n"))
            self.assertEqual((ended.returncode, ended.stdout), (1, ""))
            self.assertIn(said, ended.stderr)
        many = self.ctl("simulate", self.write("many.yaml", "\n---\n".join(DEPLOYMENT.replace("replicas: 3", "replicas: 100000").replace("web", f"web{i}").replace("plain", f"plain{i}") for i in range(3))))
        self.assertEqual((many.returncode, many.stderr), (1, "hamictl simulate: more than 200000 pods without a node\n"))
        self.assertEqual(self.ctl("simulate", "/nowhere").returncode, 1)
        self.assertEqual(self.ctl("simulate", "/tmp").stderr, "hamictl simulate: /tmp: can't be read: Is a directory\n")
        self.assertIn("--in-order goes with --policy", self.ctl("simulate", "--in-order", self.cluster).stderr)
        self.assertEqual(self.ctl("simulate").returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
