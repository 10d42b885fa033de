// Readers of YAML take each name in `stats-tube` for a text: names.js PORT FILE
// FILE gets the names and replies, for readers in other languages.
const fs = require("fs");
const net = require("net");
const yaml = require("yaml");
const readers = {
  "js-yaml 4": require("js-yaml").load,
  "js-yaml 3": require("js-yaml-3").safeLoad,
  "yaml 1.1": (text) => yaml.parse(text, { version: "1.1" }),
  "yaml 1.2": (text) => yaml.parse(text),
};
const plain = "mails 2fa-mails 2fa v1.2 192.168.0.1 1/2 10-20 2024-12 null-jobs yess .info nan $1 (1)";
const quoted =
  "0 7 007 +7 1_000 0x1F 0o17 0b101 1.5 .5 5. 1e3 1E+5 E5 +_ . .inf .NaN 2024-12-31 null NULL true False yes No ON off y N";
const names = [...plain.split(" "), ...quoted.split(" ")];

const socket = net.connect(Number(process.argv[2]), "127.0.0.1", () => {
  for (const name of names) socket.write(`use ${name}\r\nstats-tube ${name}\r\n`);
  socket.write("quit\r\n");
});
let replies = "";
socket.on("data", (data) => (replies += data));
socket.on("end", () => {
  const documents = replies.split(/USING .*\r\nOK \d+\r\n/).slice(1);
  let wrong = 0;
  const complain = (...words) => console.error(...words, (wrong += 1));
  if (documents.length !== names.length) complain("replies:", documents.length);
  names.forEach((name, at) => {
    const line = documents[at]?.split("\n")[1];
    const expected = plain.split(" ").includes(name) ? `name: ${name}` : `name: "${name}"`;
    if (line !== expected) return complain(line, "is not", expected);
    for (const [reader, read] of Object.entries(readers)) {
      const found = read(documents[at]).name;
      if (found !== name) complain(reader, "takes", line, "for", found);
    }
  });
  fs.writeFileSync(process.argv[3], JSON.stringify(names.map((name, at) => [name, documents[at]])));
  console.log(`names: ${names.length} of tubes, ${Object.keys(readers).length} readers of YAML, ${wrong} wrong`);
  process.exitCode = wrong ? 1 : 0;
});
