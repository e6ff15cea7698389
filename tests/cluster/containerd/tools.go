// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools names the programs of the container runtime that the test cluster is built with.
package tools

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
