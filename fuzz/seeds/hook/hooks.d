
{"ociVersion":"1.0.2","id":"c1","pid":0,"status":"stopped","root":"/r","bundle":"/b","annotations":{"runmig.dev/slice":"1g.10gb"}}