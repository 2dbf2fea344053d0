// Command redlock runs commands under a distributed lock on independent Redis masters.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/redquorum/locks/cmd/redlock/internal/demo"
)

func main() {
	logging.Disable() // go-redis writes to stderr, in a form of its own, what the errors of the library say as well
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit code. Failures are told on stderr, in one line each.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	tell(stderr, err)
	return exitCode(err)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "redlock",
		Short: "Distributed locks on independent Redis masters",
		Long: `redlock runs commands under a lock that is held on a majority of independent
Redis masters, so that at most one of them runs at a time, on whatever machine.`,
		Example: `  redlock run --node redis://10.0.0.1 --node redis://10.0.0.2 --node redis://10.0.0.3 \
    nightly-report -- /usr/local/bin/report --all

  source <(redlock completion bash)`,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       version(),
		SilenceErrors: true, // execute tells them, in one line
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("redlock {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%v (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(newRunCommand(), demo.Command(), newVersionCommand())
	return root
}

// knownCommand refuses what is not the name of a command.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see redlock --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError("unknown command %q (%s)", args[0], hint)
}

// tell writes err as one line, if there is anything to say.
func tell(w io.Writer, err error) {
	if err == nil || err.Error() == "" {
		return
	}
	line := strings.TrimPrefix(err.Error(), "redlock: ") // what the library begins its errors with
	fmt.Fprintf(w, "redlock: %s\n", strings.ReplaceAll(line, "\n", "; "))
}
