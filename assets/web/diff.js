// The difference of two texts by lines.

/** [[kind, line of a, line of b]], kind "=", "-" (only in a) or "+" (only in b), lines from 0 and null where there is none.
 *  The longest common subsequence; texts too long for its table differ as a whole between their equal beginning and end. */
function diff(a, b, most = 4e6) {
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const rows = a.length - start - end, columns = b.length - start - end, wide = columns + 1;
  const found = [];
  for (let i = 0; i < start; i += 1) found.push(["=", i, i]);
  let i = 0, j = 0;
  if (rows * columns <= most) {
    const common = new Uint32Array((rows + 1) * wide); // of what follows line i of a and line j of b
    for (let x = rows - 1; x >= 0; x -= 1) {
      for (let y = columns - 1; y >= 0; y -= 1) {
        common[x * wide + y] = a[start + x] === b[start + y]
          ? common[(x + 1) * wide + y + 1] + 1
          : Math.max(common[(x + 1) * wide + y], common[x * wide + y + 1]);
      }
    }
    while (i < rows && j < columns) {
      if (a[start + i] === b[start + j]) found.push(["=", start + i++, start + j++]);
      else if (common[(i + 1) * wide + j] >= common[i * wide + j + 1]) found.push(["-", start + i++, null]);
      else found.push(["+", null, start + j++]);
    }
  }
  while (i < rows) found.push(["-", start + i++, null]);
  while (j < columns) found.push(["+", null, start + j++]);
  for (let k = end; k > 0; k -= 1) found.push(["=", a.length - k, b.length - k]);
  return found;
}

/** The same as rows to be shown beside each other: [[line of a or null, line of b or null, equal]]; what went and what came in
 *  its place share rows. */
function beside(found) {
  const rows = [];
  let gone = [], come = [];
  const close = () => {
    for (let k = 0; k < Math.max(gone.length, come.length); k += 1) rows.push([gone[k] ?? null, come[k] ?? null, false]);
    gone = [];
    come = [];
  };
  for (const [kind, i, j] of found) {
    if (kind === "-") gone.push(i);
    else if (kind === "+") come.push(j);
    else {
      close();
      rows.push([i, j, true]);
    }
  }
  close();
  return rows;
}
