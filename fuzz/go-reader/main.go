// Command go-reader prints what Go's encoding/json reads in a config.json, as runc does: the reference
// for what runmig believes of the file. The types have the names of the OCI runtime specification.
//
// Standard input holds documents, each after its length as four bytes, big endian. The answers have the
// same form: the fields as JSON with nothing left out, or {"error": "..."}.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
)

type Spec struct {
	Process     *Process          `json:"process"`
	Mounts      []Mount           `json:"mounts"`
	Hooks       *Hooks            `json:"hooks"`
	Annotations map[string]string `json:"annotations"`
	Linux       *Linux            `json:"linux"`
}

type Process struct {
	User User     `json:"user"`
	Env  []string `json:"env"`
}

type User struct {
	UID            uint32   `json:"uid"`
	GID            uint32   `json:"gid"`
	AdditionalGids []uint32 `json:"additionalGids"`
}

type Mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

type Hooks struct {
	Prestart        []Hook `json:"prestart"`
	CreateRuntime   []Hook `json:"createRuntime"`
	CreateContainer []Hook `json:"createContainer"`
	StartContainer  []Hook `json:"startContainer"`
	Poststart       []Hook `json:"poststart"`
	Poststop        []Hook `json:"poststop"`
}

type Hook struct {
	Path    string   `json:"path"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	Timeout *int     `json:"timeout"`
}

type Linux struct {
	Devices     []Device    `json:"devices"`
	Resources   *Resources  `json:"resources"`
	Namespaces  []Namespace `json:"namespaces"`
	CgroupsPath string      `json:"cgroupsPath"`
}

type Device struct {
	Path     string  `json:"path"`
	Type     string  `json:"type"`
	Major    int64   `json:"major"`
	Minor    int64   `json:"minor"`
	FileMode *uint32 `json:"fileMode"`
	UID      *uint32 `json:"uid"`
	GID      *uint32 `json:"gid"`
}

type Resources struct {
	Devices []Rule `json:"devices"`
}

type Rule struct {
	Allow  bool   `json:"allow"`
	Type   string `json:"type"`
	Major  *int64 `json:"major"`
	Minor  *int64 `json:"minor"`
	Access string `json:"access"`
}

type Namespace struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		document := make([]byte, length)
		if _, err := io.ReadFull(in, document); err != nil {
			panic(err)
		}
		answer := read(document)
		if err := binary.Write(out, binary.BigEndian, uint32(len(answer))); err != nil {
			panic(err)
		}
		out.Write(answer)
		if err := out.Flush(); err != nil {
			panic(err)
		}
	}
}

func read(document []byte) []byte {
	var spec Spec
	var answer any = &spec
	if err := json.NewDecoder(bytes.NewReader(document)).Decode(&spec); err != nil {
		answer = map[string]string{"error": err.Error()}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return text
}
