// Checks a board against Grafana's schema, strictly: it names each missing and each unknown field.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func check(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// Without them the options of panels and the queries are not checked.
	plugins.RegisterDefaultPlugins()
	board := dashboard.Dashboard{}
	if err := board.UnmarshalJSONStrict(raw); err != nil {
		return err
	}
	return board.Validate()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schema BOARD.json")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
