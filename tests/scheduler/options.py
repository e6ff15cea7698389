#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hami-scheduler's command line, and what it says when it can't start."""

import shlex

from support import *

# As HAMi's chart starts its scheduler, and the flags that people add.
HAMIS = """
--metrics-bind-address=127.0.0.1:0 --node-scheduler-policy=binpack --gpu-scheduler-policy=spread
--force-overwrite-default-scheduler=true --scheduler-name=hami-scheduler --enable-ascend=true --enable-iluvatar=true
--node-label-selector=gpu=on --leader-elect=false --leader-elect-resource-name=hami-scheduler
--leader-elect-resource-namespace=kube-system --kube-qps=5 --kube-burst=10 --kube-timeout=30 --node-lock-timeout=5m
--legacy-metrics=false --profiling=false --debug -v=4
"""


def say(*flags, **environment):
    return run([PROGRAM, *flags], bare_environment(None, HOME="/nonexistent", KUBERNETES_SERVICE_HOST="", **environment), timeout=20)


def fails(sentence, words, *flags, code=None):
    """It ends at once, with a status, and names what is wrong."""
    ended = say(*flags)
    right = ended.returncode == code if code is not None else ended.returncode not in (0, None) and ended.returncode > 0
    return check(right and all(word in ended.stderr for word in words), sentence, ended.returncode, ended.stderr[-600:])


def main():
    api = Api()
    certificate = certificate_folder()
    kubeconfig = api.kubeconfig(scratch / "kubeconfig")
    config = f"--device-config-file={CONFIG}"
    there = [config, f"--kubeconfig={kubeconfig}", "--http_bind=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"]

    ended = say("--help")
    check_equal((ended.returncode, ended.stderr), (0, ""), "--help ends with status 0")
    for flag in ("--http_bind", "--cert_file", "--key_file", "--device-config-file", "--scheduler-name", "--kubeconfig", "--verbosity"):
        check(flag in ended.stdout, f"and tells of {flag}")
    ended = say("--version")
    check(ended.returncode == 0 and re.match(r"hami-scheduler \d+\.\d+", ended.stdout), "--version tells the version", ended.stdout)

    usage = 2
    fails("an unknown flag is named", ["--nonsense"], "--nonsense", *there, code=usage)
    fails("so is an argument", ["word"], "word", *there, code=usage)
    fails("the device configuration is needed", ["--device-config-file"], *there[1:], code=usage)
    fails("a certificate needs its key", ["--cert_file", "--key_file"], *there, f"--cert_file={certificate}/tls.crt", code=usage)
    fails("a policy is one of three", ["--node-scheduler-policy", "nonsense"], *there, "--node-scheduler-policy=nonsense", code=usage)
    fails("for devices, too", ["--gpu-scheduler-policy"], *there, "--gpu-scheduler-policy=", code=usage)
    fails("a switch is true or false", ["--force-overwrite-default-scheduler", "maybe"], *there, "--force-overwrite-default-scheduler=maybe", code=usage)
    fails("an election needs a lease", ["--leader-elect-resource-name"], *there, "--leader-elect", code=usage)
    for time_ in ("3", "0s", "99ms", "61s", "s", "3m", "-3s", "3000000000ms"):
        fails(f"{time_} is no time for a bind", ["--bind-timeout"], *there, f"--bind-timeout={time_}", code=usage)
    fails("verbosity is a number", ["verbosity"], *there, "-v", "much", code=usage)
    fails("it has the other programs' name, too", ["verbosity", "much"], *there, "--v=4", "--v=much", code=usage)

    fails("a file that is missing is named", ["error --device-config-file: /nonexistent/device-config.yaml: No such file"], *there[1:], "--device-config-file=/nonexistent/device-config.yaml", code=1)
    (scratch / "nothing.yaml").write_text("vnpus: []\n")
    fails("one that leaves nothing to share is refused", ["nothing.yaml", "no section of a vendor that is served"], *there[1:], f"--device-config-file={scratch}/nothing.yaml", code=1)
    fails("so is a kubeconfig", ["error --kubeconfig: /nonexistent/kubeconfig: No such file"], config, *there[2:], "--kubeconfig=/nonexistent/kubeconfig", code=1)
    fails("where there is none it is said", [".kube/config"], config, *there[2:], code=1)
    for missing in ("cert", "key"):
        files = {"cert": f"{certificate}/tls.crt", "key": f"{certificate}/tls.key", missing: f"/nonexistent/{missing}"}
        fails(f"a missing {missing} file is named", [f"error --{missing}_file: /nonexistent/{missing}: No such file"], *there, f"--cert_file={files['cert']}", f"--key_file={files['key']}", code=1)
    other = make_certificate(scratch / "other", 9)
    fails("a key of another certificate is none", ["not the key of"], *there, f"--cert_file={certificate}/tls.crt", f"--key_file={other}/tls.key", code=1)
    for address in ("nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http-nonsense", "127.0.0.1:1x", ":65536"):
        for option, others in (("http_bind", [there[3]]), ("metrics-bind-address", [there[2]])):
            fails(f"an address that is none is named: {address}", [f"hami-scheduler: --{option}: {address}: "], *there[:2], f"--{option}={address}", *others, code=usage)
    fails("so is a host that nobody knows", ["listening on no.such.host.invalid:80: "], *there[:2], "--http_bind=no.such.host.invalid:80", there[3], code=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fails("an address that is taken is named", [f"127.0.0.1:{port}", "in use"], *there[:2], f"--http_bind=127.0.0.1:{port}", there[3], code=1)
        fails("so is that of the metrics", [f"127.0.0.1:{port}", "in use"], *there[:3], f"--metrics-bind-address=127.0.0.1:{port}", code=1)

    bad = scratch / "device-config.yaml"
    bad.write_text('nvidia:\n  resourceCountName: "nvidia.com/gpu"\n  nonsense: 7\n')
    fails("a device configuration's unknown key is named with its line", [str(bad), "nonsense", "3"], *there[1:], f"--device-config-file={bad}", code=1)
    bad.write_text("nvidia: [\n")
    fails("so is a place that is not YAML", [str(bad), "2"], *there[1:], f"--device-config-file={bad}", code=1)

    api.set(NODES, node("node-1", labels={"gpu": "on"}))
    scheduler = Scheduler(api, *shlex.split(HAMIS))
    check_equal(scheduler.filter(pod(), ["node-1"])["NodeNames"], ["node-1"], "HAMi's flags are accepted")
    check("--kube-qps: without effect" in scheduler.said(), "--kube-qps is said to be without effect")
    scheduler.end()

    asking = pod()
    asking["spec"]["containers"][0]["resources"] = {"limits": {"iluvatar.ai/MR-V50-vgpu": "1"}}
    for flag, served in (([], True), (["--enable-iluvatar=false"], False)):
        scheduler = Scheduler(api, *flag)
        refused = not scheduler.filter(asking, ["node-1"])["NodeNames"]
        check_equal(refused, served, f"Iluvatar's section is {'served' if served else 'not served'} with {flag}")
        scheduler.end()
    scheduler = Scheduler(api, "-v5")
    scheduler.filter(pod(100 * CARD_MIB), ["node-1"])
    check("CardInsufficientMemory" in scheduler.said(), "-v5 tells decisions in detail")
    scheduler.end(signal.SIGINT)
    check_equal(scheduler.process.returncode, 0, "an interrupt ends it, too")
    finish()


main()
