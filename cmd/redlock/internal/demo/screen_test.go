package demo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func sample() view {
	return view{
		at:     4 * time.Second,
		of:     20 * time.Second,
		states: []string{"", "frozen", ""},
		faults: "1 of 1 faults survived",
		report: report{
			leases:    map[string]int{"orders": 1, "invoices": 2},
			present:   map[string][]hold{"orders": {{worker: "worker 1", token: 7}, {worker: "worker 2", token: 8}}},
			asleep:    map[string]string{"invoices": "worker 12"},
			total:     3,
			handOvers: 1,
			refused:   1,
			breaches:  []breach{{offence: overlap}},
		},
	}
}

func TestPlainLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newScreen(&out, newLedger())
	s.show(sample())
	s.close()
	want := "  4.0s  master 2 frozen,  2 up  |  orders: worker 1 AND worker 2  invoices: -  reports: -  |  " +
		"3 leases, 1 hand-over, 1 of 1 faults survived, 1 stale write refused, 1 overlap\n"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestThePanelIsDrawnOverItself(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newScreen(&out, newLedger())
	s.panel = true
	s.show(sample())
	first := out.String()
	for _, want := range []string{"1 up", "2 frozen", "worker 1   token 7 and worker 2 (token 8)", "worker 12 is paused past its lease", "2 leases"} {
		if !strings.Contains(first, want) {
			t.Errorf("the panel does not show %q:\n%s", want, first)
		}
	}
	out.Reset()
	s.event("master %d is back", 2)
	again := out.String()
	up := strings.Count(first, "\n")
	if !strings.HasPrefix(again, fmt.Sprintf("\x1b[%dA\r", up)) || strings.Count(again, "\n") != up+1 {
		t.Errorf("an event does not take the place of the panel of %d lines:\n%q", up, again)
	}
	out.Reset()
	s.close()
	if got := out.String(); strings.Contains(got, "\n") || !strings.HasSuffix(got, clearRest+wrapOn) {
		t.Errorf("the panel stays: %q", got)
	}
}
