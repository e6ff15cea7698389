// SPDX-License-Identifier: Apache-2.0

// The etcd server, built at the version that Kubernetes here asks for.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
