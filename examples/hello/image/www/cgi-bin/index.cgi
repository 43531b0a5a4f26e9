#!/bin/sh
# The page of the service `web`. Values from outside are shown as text only.
escape() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'; }

line=$(wget -q -T 5 -O - http://api:8080/line.txt) || line="(the service api does not answer)"
cat <<PAGE
Content-Type: text/html; charset=utf-8

<!doctype html>
<title>Hello from Cloister</title>
<h1>Hello from $(echo "$APP_NAME" | escape)</h1>
<p>This page comes from a virtual machine of its own, for the app <code>$(echo "$APP_ID" | escape)</code>.</p>
<p>The service <code>api</code> says: $(echo "$line" | escape)</p>
PAGE
