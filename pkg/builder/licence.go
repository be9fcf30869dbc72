package builder

import (
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// spdx are the licence identifiers that are known by name here: those that npm
// packages use most. CycloneDX wants an id to be one of SPDX's list; any other
// is given as a name, which is as true.
var spdx = func() map[string]bool {
	all := map[string]bool{}
	for _, id := range strings.Fields(`0BSD AFL-2.1 AGPL-3.0 AGPL-3.0-only AGPL-3.0-or-later Apache-2.0 Artistic-2.0
		BlueOak-1.0.0 BSD-2-Clause BSD-3-Clause BSD-3-Clause-Clear BSL-1.0 CC-BY-3.0 CC-BY-4.0 CC0-1.0 ECL-2.0 EPL-1.0
		EPL-2.0 EUPL-1.2 GPL-2.0 GPL-2.0-only GPL-2.0-or-later GPL-3.0 GPL-3.0-only GPL-3.0-or-later ISC LGPL-2.1
		LGPL-2.1-only LGPL-2.1-or-later LGPL-3.0 LGPL-3.0-only LGPL-3.0-or-later MIT MIT-0 MPL-1.1 MPL-2.0 MS-PL NCSA
		OFL-1.1 OSL-3.0 PostgreSQL Python-2.0 Ruby Unicode-DFS-2016 Unlicense UPL-1.0 W3C WTFPL X11 Zlib
		ZPL-2.1`) {
		all[id] = true
	}
	return all
}()

// licences gives the licences of a component: nil when none is known.
func licences(named []string) *cdx.Licenses {
	switch {
	case len(named) == 0:
		return nil
	case len(named) == 1 && isExpression(named[0]):
		return &cdx.Licenses{{Expression: named[0]}}
	}
	var all cdx.Licenses
	for _, name := range named {
		if spdx[name] {
			all = append(all, cdx.LicenseChoice{License: &cdx.License{ID: name}})
		} else {
			all = append(all, cdx.LicenseChoice{License: &cdx.License{Name: name}})
		}
	}
	return &all
}

// isExpression tells an SPDX expression such as (MIT OR Apache-2.0), of known
// identifiers, from a licence's name.
func isExpression(text string) bool {
	words := strings.Fields(strings.NewReplacer("(", " ", ")", " ").Replace(text))
	for at, word := range words {
		operator := word == "OR" || word == "AND"
		if operator != (at%2 == 1) || (!operator && !spdx[word]) {
			return false
		}
	}
	return len(words) >= 3 && len(words)%2 == 1
}
