/**
 * The data of a mermaid diagram that is a chart: {kind: 'pie' | 'column' | 'bar' | 'line', title, categories, series: [[name, values]]}, or null for
 * any other diagram and for what no single chart of a presentation program shows (bars with lines, an axis of numbers alone).
 */
export function chart(source) {
  const lines = source.replace(/^---\n[^]*?\n---\n/, '').replace(/%%\{[^]*?\}%%/g, '').split('\n').map(line => line.replace(/^\s*%%.*/, '').trim()).filter(Boolean)
  const head = /^(pie|xychart(?:-beta)?)\b\s*(.*)$/.exec(lines.shift() ?? '')
  return head && (head[1] === 'pie' ? pie : xy)(head[2], lines)
}

const unquoted = text => text.trim().replace(/^"(.*)"$/, '$1')

function pie(rest, lines) {
  const told = { kind: 'pie', title: '', categories: [], series: [['', []]] }
  for (const line of [rest.replace(/^showData\b\s*/, ''), ...lines].filter(Boolean)) {
    const [, label, value] = /^"([^"]*)"\s*:\s*(\d+(?:\.\d+)?)$/.exec(line) ?? []
    const [, title] = /^title\s+(.*)$/.exec(line) ?? []
    if (label !== undefined) {
      told.categories.push(label)
      told.series[0][1].push(Number(value))
    }
    else if (title !== undefined) {
      told.title = title
    }
    else if (!/^(?:showData$|acc(?:Title|Descr)\b)/.test(line)) {
      return null
    }
  }
  return told.categories.length ? told : null
}

function xy(rest, lines) {
  const told = { title: '', categories: [], series: [] }
  const kinds = new Set()
  for (const line of lines) {
    const [, what, name, list] = /^(title|x-axis|y-axis|bar|line)\b\s*([^[]*)(?:\[([^\]]*)\])?$/.exec(line) ?? []
    if (what === 'title')
      told.title = unquoted(name)
    else if (what === 'x-axis' && list !== undefined)
      told.categories = (list.match(/\s*"[^"]*"|[^,]+/g) ?? []).map(unquoted).filter(Boolean)
    else if (/^(?:bar|line)$/.test(what) && list !== undefined && kinds.add(what))
      told.series.push([unquoted(name), list.split(',').map(Number)])
    else if (what !== 'y-axis' && !/^acc(?:Title|Descr)\b/.test(line))
      return null
  }
  const whole = told.categories.length && told.series.every(([, values]) => values.length === told.categories.length && values.every(Number.isFinite))
  const kind = kinds.has('line') ? 'line' : /^horizontal\b/.test(rest) ? 'bar' : 'column'
  return whole && kinds.size === 1 ? { kind, ...told } : null
}
