// Command bench compares redlock with other Redlock libraries for Go, side by side: on the same redis-server processes,
// which it starts and ends itself, and by turns, so that what disturbs the machine disturbs all of them alike.
//
// Masters and callers share the machine, so times depend on it. What counts are the ratios within one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string) error {
	plan, err := parse(args)
	if err != nil {
		return err
	}
	results, err := plan.execute(ctx, os.Stdout)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil || !plan.check:
		return err
	}
	return check(os.Stdout, results)
}

// A plan is what the command line asks for.
type plan struct {
	nodes    numbers
	callers  numbers
	duration time.Duration
	reps     int
	check    bool
}

func parse(args []string) (*plan, error) {
	p := &plan{nodes: numbers{3, 5}, callers: numbers{1, 16, 128}}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.Var(&p.nodes, "n", "numbers of masters, a `list` with commas")
	flags.Var(&p.callers, "c", "numbers of concurrent callers, a `list` with commas")
	flags.DurationVar(&p.duration, "d", time.Second, "length of one repetition")
	flags.IntVar(&p.reps, "reps", 3, "repetitions, of which the medians are told")
	flags.BoolVar(&p.check, "check", false, "exit with 1 unless redlock keeps the promised distance to "+reference)
	_ = flags.Parse(args) // ends the program if it fails
	if err := p.problem(flags.Args()); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *plan) problem(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case p.duration < 10*time.Millisecond || p.duration >= lockTTL:
		// Keys that are left behind are counted at the end of a repetition: they must not have expired by then.
		return fmt.Errorf("-d %v is outside 10ms to %v", p.duration, lockTTL)
	case p.reps < 1:
		return fmt.Errorf("-reps %d: the least is 1", p.reps)
	}
	if !p.check {
		return nil
	}
	for _, d := range demands {
		if !slices.Contains(p.nodes, d.in.nodes) || !slices.Contains(p.callers, d.in.callers) {
			return fmt.Errorf("-check needs %v to be measured, see -n and -c", d.in)
		}
	}
	return nil
}

// A setting is one group of rows in the table.
type setting struct{ nodes, callers int }

func (s setting) String() string { return fmt.Sprintf("N=%d c=%d", s.nodes, s.callers) }

// results are the medians, by setting and by name of the contestant.
type results map[setting]map[string]figures

func (p *plan) execute(ctx context.Context, out io.Writer) (results, error) {
	fmt.Fprintf(out, "Uncontended acquire+release, medians of %d repetitions of %v; ×: ratio to %s; %s, %d CPUs\n\n",
		p.reps, p.duration, reference, runtime.Version(), runtime.NumCPU())
	printHeader(out)
	all := results{}
	for _, n := range p.nodes {
		if err := p.onMasters(ctx, out, n, all); err != nil {
			return nil, err
		}
	}
	printLegend(out)
	return all, nil
}

// onMasters measures all settings of n masters.
func (p *plan) onMasters(ctx context.Context, out io.Writer, n int, all results) (err error) {
	m, err := startMasters(ctx, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	for _, callers := range p.callers {
		s := setting{n, callers}
		if all[s], err = p.byTurns(ctx, m, callers); err != nil {
			return err
		}
		printRows(out, s, all[s])
	}
	return nil
}

// byTurns measures the contestants one after the other, as often as there are repetitions.
func (p *plan) byTurns(ctx context.Context, m *masters, callers int) (map[string]figures, error) {
	runs := map[string][]figures{}
	for range p.reps {
		for _, c := range contestants {
			f, err := measure(ctx, m, c, callers, p.duration)
			if err != nil {
				return nil, err
			}
			runs[c.name] = append(runs[c.name], f)
		}
	}
	result := map[string]figures{}
	for name, rs := range runs {
		result[name] = medians(rs)
	}
	return result, nil
}

// numbers is a flag: positive numbers, separated by commas.
type numbers []int

func (n *numbers) String() string {
	words := make([]string, len(*n))
	for i, v := range *n {
		words[i] = strconv.Itoa(v)
	}
	return strings.Join(words, ",")
}

// Set replaces the numbers.
func (n *numbers) Set(list string) error {
	*n = nil
	for word := range strings.SplitSeq(list, ",") {
		v, err := strconv.Atoi(word)
		if err != nil || v < 1 {
			return fmt.Errorf("%q is not a positive number", word)
		}
		*n = append(*n, v)
	}
	return nil
}

// columns are the figures in the order of the table. Rows are printed as they come, so widths are fixed.
var columns = []struct {
	title  string
	figure figure
	width  int
	digits int
	ratio  bool // followed by the ratio to the reference
}{
	{"p50 µs", p50, 9, 0, true},
	{"p99 µs", p99, 9, 0, true},
	{"ops/s", rate, 9, 0, true},
	{"allocs/op", allocs, 11, 1, true},
	{"goroutines", goroutines, 12, 0, false},
	{"commands/op", commands, 13, 2, false},
	{"left/1000", left, 11, 2, false},
}

const (
	settingWidth = 12
	nameWidth    = 15
	ratioWidth   = 7
)

func printHeader(out io.Writer) {
	fmt.Fprint(out, pad("", settingWidth+nameWidth))
	for _, c := range columns {
		fmt.Fprintf(out, "%*s", c.width, c.title)
		if c.ratio {
			fmt.Fprintf(out, "%*s", ratioWidth, "×")
		}
	}
	fmt.Fprintln(out)
}

// printRows prints what the contestants did in one setting.
func printRows(out io.Writer, s setting, by map[string]figures) {
	label := s.String()
	for _, c := range contestants {
		fmt.Fprintln(out, pad(label, settingWidth)+pad(c.name, nameWidth)+row(by[c.name], by[reference]))
		label = "" // once for a setting
	}
	fmt.Fprintln(out)
}

func row(f, base figures) string {
	var line strings.Builder
	for _, c := range columns {
		fmt.Fprintf(&line, "%*.*f", c.width, c.digits, f[c.figure])
		if c.ratio {
			fmt.Fprintf(&line, "%*.2f", ratioWidth, f[c.figure]/base[c.figure])
		}
	}
	return line.String()
}

func printLegend(out io.Writer) {
	fmt.Fprintln(out, `goroutines   the most at any time, beside the callers' own
commands/op  sent to all masters together, by their own count; what scripts call is not counted
left/1000    lock keys on all masters together at the end, for every 1000 operations`)
}

func pad(s string, width int) string { return fmt.Sprintf("%-*s", width, s) }

// A demand is a ratio to the reference that redlock must keep.
type demand struct {
	in     setting
	figure figure
	what   string
	least  float64 // 0: no lower limit
	most   float64 // 0: no upper limit
}

var demands = []demand{
	{in: setting{nodes: 3, callers: 1}, figure: p50, what: "p50", most: 1.1},
	{in: setting{nodes: 3, callers: 128}, figure: rate, what: "ops/s", least: 2.5},
}

// check tells whether redlock kept each demand, and returns an error if it did not keep all.
func check(out io.Writer, all results) error {
	kept := true
	for _, d := range demands {
		verdict := "ok"
		if !d.kept(all) {
			kept, verdict = false, "MISSED"
		}
		fmt.Fprintf(out, "check %v: %s is %.2f of %s, %s: %s\n", d.in, d.what, d.ratio(all), reference, d.limit(), verdict)
	}
	if !kept {
		return errors.New("redlock does not keep the promised distance to " + reference)
	}
	return nil
}

func (d demand) ratio(all results) float64 {
	by := all[d.in]
	return by["redlock"][d.figure] / by[reference][d.figure]
}

func (d demand) kept(all results) bool {
	r := d.ratio(all)
	return r >= d.least && (d.most == 0 || r <= d.most)
}

func (d demand) limit() string {
	if d.most > 0 {
		return fmt.Sprintf("at most %.2f wanted", d.most)
	}
	return fmt.Sprintf("at least %.2f wanted", d.least)
}
