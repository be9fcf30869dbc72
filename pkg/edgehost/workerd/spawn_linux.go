package workerd

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsolationSupported reports whether Workers can run under their own uid in
// an empty network namespace: Linux, as root.
func IsolationSupported() bool { return os.Geteuid() == 0 }

// processAttributes puts the process into its own group, so that a Ctrl-C in
// the terminal is the host's alone to handle, and lets it die with the host.
func processAttributes(uid uint32) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if uid != 0 {
		attr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
		attr.Cloneflags = syscall.CLONE_NEWNET
	}
	return attr
}

// limitResources forbids core dumps: they would hold tenants' data. Address
// space limits do not work with V8, memory is polled instead.
func limitResources(pid int) {
	_ = unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
}

func memory(pid int, limit uint64) (uint64, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0, false
	}
	resident := pages * uint64(os.Getpagesize())
	if resident <= limit {
		return resident, true
	}
	if pss, ok := proportional(pid); ok {
		return pss, true
	}
	return resident, true
}

func proportional(pid int) (uint64, bool) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, false
	}
	defer func() { _ = file.Close() }() // it is only read
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "Pss:" {
			kib, err := strconv.ParseUint(fields[1], 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
