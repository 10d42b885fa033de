// Runs in the page: decodes as many bodies as are wanted, each of them one of the bodies
// below with some changes at random, and returns how many were decoded. It throws an error
// if a decoder does, or if what it shows is too long; and it never ends if a decoder hangs.
const [seed, count] = arguments;
const SEEDS = [
  '{"to":"é@example.org","list":[1,-2.5e3,{},[]],"text":"a\\"b\\u00e9\\\\","none":null,"big":12345678901234567890}',
  "[[[[[[[[[[]]]]]]]]]]",
  "\0\x01\x02 binary \xff\r\n",
];
const PIECES = ["[", "]", "{", "}", '"', ":", ";", "\\", "-", "1e300", "999999999", "=", "\0", "é"];
let state = seed * 2654435761 + 1;
const random = (below) => {
  // xorshift32
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % below;
};
const change = (text) => {
  const at = random(text.length + 1);
  const length = random(8);
  switch (random(5)) {
    case 0: return text.slice(0, at) + text.slice(at + length);
    case 1: return text.slice(0, at) + PIECES[random(PIECES.length)] + text.slice(at);
    case 2: return text.slice(0, at) + text.slice(at, at + 9).repeat(1 + random(random(50) ? 9 : 5000)) + text.slice(at);
    case 3: return text.slice(0, at) + String.fromCharCode(random(256)) + text.slice(at + 1);
    default: return text.slice(0, at) + SEEDS[random(SEEDS.length)].slice(random(30)) + text.slice(at + length);
  }
};
return import("/body.js").then(({ formsOf }) => {
  for (let done = 0; done < count; done += 1) {
    let text = SEEDS[random(SEEDS.length)];
    for (let changes = 1 + random(6); changes > 0; changes -= 1) text = change(text);
    const bytes = random(2) ? new TextEncoder().encode(text) : Uint8Array.from(text, (one) => one.charCodeAt(0));
    const forms = formsOf(bytes);
    const isRight = forms.length >= 2 && forms.every(([name, shown]) => name && shown.length < 300000);
    if (!isRight) throw new Error(`${forms.map(([name, shown]) => [name, shown.length])} of ${JSON.stringify(text)}`);
  }
  return count;
});
