module runmig.dev/go-reader

go 1.20
