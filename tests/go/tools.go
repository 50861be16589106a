//go:build tools

// Package tools names the programs of others that the tests run, so that go.mod and go.sum pin them with all that
// they are made of. tools/setup --test builds them.
package tools

import (
	_ "github.com/summerwind/h2spec/cmd/h2spec"
	_ "google.golang.org/grpc/interop/client"
)
