package npm

import "strings"

// circle refuses packages that require each other in a circle. What such code
// sees of itself depends on which of them is imported first; peer and optional
// dependencies, by which well-kept packages point back, are not followed.
func (r *lockReader) circle() {
	s := search{reader: r, state: map[string]int{}}
	for _, entry := range r.lock.Packages {
		found := s.visit(entry.Path)
		if found == nil {
			continue
		}
		names := make([]string, len(found))
		for i, path := range found {
			member, _ := r.lock.Find(path)
			names[i] = member.String()
		}
		r.at(cyclic, found[0], "%s requires itself: %s", names[0], strings.Join(append(names, names[0]), " → "))
		return
	}
}

// search walks the packages depth first.
type search struct {
	reader *lockReader
	state  map[string]int // 0 unseen, 1 on the way, 2 done
	way    []string
}

// visit returns the paths of a circle that can be reached, or nil.
func (s *search) visit(path string) []string {
	switch s.state[path] {
	case 1:
		for i, on := range s.way {
			if on == path {
				return s.way[i:]
			}
		}
	case 2:
		return nil
	}
	s.state[path] = 1
	s.way = append(s.way, path)
	for _, name := range s.reader.required[path] {
		next := s.reader.lock.lookUp(path, name)
		if next == "" {
			continue // the package that the platform offers
		}
		found := s.visit(next)
		if found != nil {
			return found
		}
	}
	s.way = s.way[:len(s.way)-1]
	s.state[path] = 2
	return nil
}
