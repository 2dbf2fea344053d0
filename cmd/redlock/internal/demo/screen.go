package demo

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Escape sequences that every terminal of the last decades knows.
const (
	green     = "\x1b[32m"
	red       = "\x1b[31m"
	yellow    = "\x1b[33m"
	bold      = "\x1b[1m"
	plain     = "\x1b[0m"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
	wrapOff   = "\x1b[?7l" // what is too long is cut: the panel has as many lines as it seems
	wrapOn    = "\x1b[?7h"
)

// view is what the screen shows of a run.
type view struct {
	at, of time.Duration
	states []string // of the masters; "" is well
	faults string   // what was survived so far
	report report
}

// screen shows the progress: on a terminal as events that scroll by above a panel that is drawn again and again,
// elsewhere as plain lines. It is safe for concurrent use.
type screen struct {
	out    io.Writer
	panel  bool
	color  bool
	every  time.Duration // between two views
	ledger *ledger

	mu    sync.Mutex
	drawn []string // the panel's lines
}

func newScreen(out io.Writer, l *ledger) *screen {
	s := &screen{out: out, every: time.Second, ledger: l}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		s.panel, s.every = true, 200*time.Millisecond
		s.color = os.Getenv("NO_COLOR") == ""
	}
	return s
}

// event prints a line that stays.
func (s *screen) event(format string, args ...any) {
	line := fmt.Sprintf("%s  %s", clock(s.ledger.now()), fmt.Sprintf(format, args...))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repaint([]string{line}, s.drawn)
}

// show draws the view.
func (s *screen) show(v view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panel {
		s.repaint(nil, s.lines(v))
		return
	}
	s.repaint([]string{statusLine(v)}, nil)
}

// close removes the panel.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repaint(nil, nil)
}

// repaint prints lines that stay and the panel below them, in one write. The caller holds mu. An error of the
// writer is not looked at: a demo that nobody watches still counts.
func (s *screen) repaint(stay, panel []string) {
	if !s.panel {
		for _, line := range stay {
			_, _ = fmt.Fprintln(s.out, line)
		}
		return
	}
	var b strings.Builder
	if n := len(s.drawn); n > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", n)
	}
	for _, line := range stay {
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(wrapOff)
	for _, line := range panel {
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(clearRest + wrapOn)
	_, _ = io.WriteString(s.out, b.String())
	s.drawn = panel
}

// lines is the panel.
func (s *screen) lines(v view) []string {
	lines := []string{"", s.paint(bold, fmt.Sprintf("%s of %v", clock(v.at), v.of))}
	if len(v.states) > 0 {
		lines = append(lines, s.masters(v))
	}
	for _, name := range names {
		lines = append(lines, s.row(v.report, name))
	}
	return append(lines, "  "+counters(v, func(n int, words string) string {
		if n > 0 {
			return s.paint(red, words)
		}
		return s.paint(green, words)
	}), "")
}

// masters is the line that tells which master is in trouble.
func (s *screen) masters(v view) string {
	var b strings.Builder
	b.WriteString("  masters   ")
	for i, state := range v.states {
		color := red
		if state == "" {
			color, state = green, "up"
		}
		b.WriteString(s.paint(color, fmt.Sprintf("%d %-9s", i+1, state)))
	}
	return b.String()
}

// row tells who holds a name.
func (s *screen) row(r report, name string) string {
	holder := "nobody"
	for i, h := range r.present[name] {
		if i == 0 {
			holder = fmt.Sprintf("%-10s token %d", h.worker, h.token)
			continue
		}
		holder += s.paint(red, " and "+h.String())
	}
	row := fmt.Sprintf("  %-9s %-36s %12s", name, holder, plural(r.leases[name], "lease"))
	if sleeper := r.asleep[name]; sleeper != "" {
		row += s.paint(yellow, "   "+sleeper+" is paused past its lease")
	}
	return row
}

func (s *screen) paint(color, text string) string {
	if !s.color {
		return text
	}
	return color + text + plain
}

// statusLine is the view where there is no panel.
func statusLine(v view) string {
	var b strings.Builder
	b.WriteString(clock(v.at))
	up := 0
	for i, state := range v.states {
		if state == "" {
			up++
			continue
		}
		fmt.Fprintf(&b, "  master %d %s,", i+1, state)
	}
	if up > 0 {
		fmt.Fprintf(&b, "  %d up  |", up)
	}
	for _, name := range names {
		holders := make([]string, 0, 1)
		for _, h := range v.report.present[name] {
			holders = append(holders, h.worker)
		}
		if len(holders) == 0 {
			holders = append(holders, "-")
		}
		fmt.Fprintf(&b, "  %s: %s", name, strings.Join(holders, " AND "))
	}
	return b.String() + "  |  " + counters(v, func(_ int, words string) string { return words })
}

// counters is what a run has come to so far. The number of overlaps is painted.
func counters(v view, paint func(n int, words string) string) string {
	overlaps := v.report.count(overlap)
	words := plural(v.report.total, "lease") + ", " + plural(v.report.handOvers, "hand-over")
	if v.faults != "" {
		words += ", " + v.faults
	}
	words += ", " + plural(v.report.refused, "stale write") + " refused, "
	return words + paint(overlaps, plural(overlaps, "overlap"))
}

// clock is a time of the run, to a tenth of a second.
func clock(d time.Duration) string { return fmt.Sprintf("%5.1fs", d.Seconds()) }

// plural is a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
