// Looks up predictions that the page carries (plan-data), picks among them and shows them; no figure is computed here.
"use strict";
(async () => {
  const element = (name) => document.getElementById("plan-" + name);
  const packed = Uint8Array.from(atob(element("data").textContent), (letter) => letter.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = await new Response(plain).json();
  const axes = [...element("form").querySelectorAll("select")].map((one) => one.id.slice("plan-".length));
  const inDigits = (value) =>
    value.toLocaleString("en-US", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
  const count = (value) => value.toLocaleString("en-US");
  const ratio = (value) => (Math.abs(value) < 9.995 ? value.toFixed(2) : inDigits(value)) + "x";
  const USER = 0, GPU = 1, USD = 2;  // places of figures
  const WRITE = [inDigits, inDigits, inDigits, inDigits, count, ratio];

  function made(tag, text, parent) {
    const node = document.createElement(tag);
    node.textContent = text;
    parent.append(node);
    return node;
  }

  // One cell for each value, written by the function at its place.
  function cells(values, writes, row) {
    values.forEach((value, i) => {
      const cell = made("td", value === null ? "not known" : writes[i](value), row);
      if (value !== null) cell.dataset.value = value;
    });
  }

  // [rows that fit, figures by batch], or the number of the reason why nothing is priced.
  const column = (place) =>
    data.columns[Object.entries(data.axes).reduce((at, [axis, choices]) => at * choices + place[axis], 0)];

  // Every setting of an arm on a device, the smallest TP and batch first, and why there is none.
  function settings(asked, device, arm) {
    const found = [], reasons = [];
    let most = { rows: -1 };
    data.degrees.forEach((tp, degree) => {
      if (asked.degree > 0 && degree !== asked.degree - 1) return;  // the first option is auto
      const one = column({ ...asked, device, arm, degree });
      if (!Array.isArray(one)) return reasons.push(data.texts[one]);
      if (one[0] > most.rows) most = { rows: one[0], tp };
      one[1].forEach((figures, batch) => found.push({ device, arm, tp, rows: one[0], batch, figures }));
    });
    const fits = `at most ${count(most.rows)} rows fit (TP ${most.tp})`;
    return { found, reason: most.rows < 0 ? reasons[0] : fits };
  }

  // Nothing is better for the user and per GPU; the fastest user first.
  function front(points) {
    let best = -1;
    return [...points]
      .sort((one, other) => other.figures[USER] - one.figures[USER] || other.figures[GPU] - one.figures[GPU])
      .filter(({ figures }) => figures[GPU] > best && (best = figures[GPU], true));
  }

  const named = ({ device, tp, batch }) => `${data.devices[device]}, TP ${tp}, batch ${data.batches[batch]}`;
  const cheapest = (rows) =>
    rows.reduce((best, row) => (row.figures[USD] !== null && !(best && best.figures[USD] <= row.figures[USD]) ? row : best), null);

  function answer(names, rows, every) {
    const best = rows.map(cheapest);
    const said = best.map((row, i) => row === null
      ? `With ${names[i]} no device does this at a known price.`
      : `${names[i]} is cheapest on ${named(row)}: ${inDigits(row.figures[USD])} USD per million tokens, ` +
        `${inDigits(row.figures[USER])} tokens/s per user.`);
    if (best.includes(null)) return said.join(" ");
    const [ntp, other] = best.map((row) => row.figures[USD]);
    const who = other < ntp ? `pays: ${ratio(ntp / other)} cheaper than NTP` : `costs ${ratio(other / ntp)} as much as NTP`;
    return [...said, `${names[1]} ${who}; ${paysFrom(every)}.`].join(" ");
  }

  // From which speed of a user on the second arm is cheaper than NTP, each at its best batch for it.
  function paysFrom(every) {
    const [ntp, other] = every.map((of) => of.flatMap(({ found }) =>
      found.map(({ figures }) => ({ speed: figures[USER], usd: figures[USD] ?? Infinity }))));
    const kept = Math.max(0, ...ntp
      .filter(({ speed, usd }) => !other.some((one) => one.speed >= speed && one.usd < usd)).map(({ speed }) => speed));
    if (kept >= Math.max(...other.map(({ speed }) => speed))) return "it pays from no speed on: NTP serves the fastest users";
    return kept ? `it pays where users want more than ${inDigits(kept)} tokens/s` : "it pays at every speed";
  }

  function caption(names, fronts) {
    if (fronts.some((points) => !points.length)) return "An arm that fits nowhere has no points.";
    const ends = (pick, figure) =>
      fronts.map((points, i) => `${names[i]} ${inDigits(pick(points).figures[figure])} (${named(pick(points))})`).join(", ");
    return `Tokens/s of the fastest user: ${ends((points) => points[0], USER)}. Most tokens/s per GPU: ` +
      `${ends((points) => points[points.length - 1], GPU)}.`;
  }

  function line(name, device, shown, parent) {
    const row = made("tr", "", parent);
    row.dataset.device = data.devices[device];
    row.dataset.arm = name;
    made("th", data.devices[device], row).scope = "row";
    made("td", name, row);
    if (typeof shown === "string") {
      const absent = made("td", shown, row);
      absent.colSpan = 3 + WRITE.length;
      absent.className = "absent";
      return;
    }
    cells([shown.tp, data.batches[shown.batch], ...shown.figures, shown.rows], [count, count, ...WRITE, count], row);
  }

  const NAME_HEIGHT = 16;  // px; two names that begin at like places stand one above the other
  const SVG = element("picture").firstElementChild.namespaceURI;  // of the empty picture that stands there at first
  function drawn(tag, attributes, parent, text = "") {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.textContent = text;
    parent.append(node);
    return node;
  }

  // Ticks 1, 2, 5 times powers of ten around the values, and where a value lies between two places.
  function scale(values, from, to) {
    const every = [];
    for (let power = -3; power < 7; power++) for (const one of [1, 2, 5]) every.push(Number(`${one}e${power}`));
    const low = every.findLast((tick) => tick <= Math.min(...values)) ?? every[0];
    const high = every.find((tick) => tick >= Math.max(...values) && tick > low) ?? every.at(-1);
    const at = (value) => from + ((to - from) * Math.log(value / low)) / Math.log(high / low);
    return { at, ticks: every.filter((tick) => tick >= low && tick <= high) };
  }

  function draw() {
    const { names, fronts } = current, points = fronts.flat(), holder = element("picture");
    holder.replaceChildren();
    if (!points.length) return;
    const width = Math.max(280, holder.clientWidth), height = Math.min(340, Math.max(260, width / 2));
    const picture = drawn("svg", {
      viewBox: `0 0 ${width} ${height}`, width, height, class: "pareto", role: "group",
      "aria-label": "Tokens/s per user against tokens/s per GPU; arrow keys move between the points",
    }, holder);
    const x = scale(points.map(({ figures }) => figures[USER]), 48, width - 24);
    const y = scale(points.map(({ figures }) => figures[GPU]), height - 42, 34);
    for (const tick of x.ticks) {
      drawn("line", { x1: x.at(tick), x2: x.at(tick), y1: 34, y2: height - 42 }, picture);
      drawn("text", { x: x.at(tick), y: height - 26, "text-anchor": "middle" }, picture, count(tick));
    }
    for (const tick of y.ticks) {
      drawn("line", { x1: 48, x2: width - 24, y1: y.at(tick), y2: y.at(tick) }, picture);
      drawn("text", { x: 43, y: y.at(tick) + 4, "text-anchor": "end" }, picture, count(tick));
    }
    drawn("text", { x: width - 24, y: height - 8, "text-anchor": "end" }, picture, "tokens/s per user →");
    drawn("text", { x: 4, y: 14 }, picture, "↑ tokens/s per GPU");
    let taken = -NAME_HEIGHT;
    names.forEach((name, i) => {
      const series = drawn("g", { class: i ? "sbd" : "ntp" }, picture);
      const places = fronts[i].map(({ figures }) => [x.at(figures[USER]), y.at(figures[GPU])]);
      drawn("polyline", { points: places.map((place) => place.join()).join(" ") }, series);
      places.forEach(([left, top], j) => {
        const { figures } = fronts[i][j];
        const said = `${name}, ${named(fronts[i][j])}: ${inDigits(figures[USER])} tokens/s per user, ` +
          `${inDigits(figures[GPU])} per GPU`;
        const point = drawn("g", { role: "img", tabindex: i + j ? -1 : 0, "aria-label": said, class: "point" }, series);
        if (i) drawn("rect", { x: left - 5, y: top - 5, width: 10, height: 10 }, point);
        else drawn("circle", { cx: left, cy: top, r: 5 }, point);
        for (const event of ["focus", "pointerenter", "click"]) {
          point.addEventListener(event, () => { element("point").textContent = said; });
        }
      });
      if (places.length) {
        let [left, top] = places[0];
        if (Math.abs(top - taken) < NAME_HEIGHT) top = taken + (top < taken ? -NAME_HEIGHT : NAME_HEIGHT);
        taken = top;
        drawn("text", { x: left - 9, y: top + 4, "text-anchor": "end", class: "name" }, series, name);
      }
    });
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const every = [...picture.querySelectorAll(".point")];
      const next = every.at((every.indexOf(document.activeElement) + step) % every.length);
      for (const one of every) one.setAttribute("tabindex", one === next ? 0 : -1);
      next.focus();
    });
  }

  let current = { names: [], fronts: [] };

  function show() {
    const asked = Object.fromEntries(axes.map((name) => [name, Number(element(name).value)]));
    const arms = [0, asked.arm + 1], names = arms.map((arm) => data.names[arm]);
    const devices = asked.device > 0 ? [asked.device - 1] : data.devices.map((_, i) => i);  // the first option is all
    const every = arms.map((arm) => devices.map((device) => settings(asked, device, arm)));
    const least = data.speeds[asked.batch], batch = asked.batch - data.speeds.length;  // the best of each, or one batch
    const rows = every.map((of) => of.map(({ found }) => least === undefined ? found.find((one) => one.batch === batch) :
      found.filter(({ figures }) => figures[USER] >= least)
        .reduce((best, one) => (best && best.figures[GPU] >= one.figures[GPU] ? best : one), undefined)));
    element("rows").replaceChildren();
    devices.forEach((device, i) => arms.forEach((_, arm) => {
      const { found, reason } = every[arm][i], why = found.length && least ? `no batch gives a user ${least} tokens/s` : reason;
      line(names[arm], device, rows[arm][i] ?? why, element("rows"));
    }));
    current = { names, fronts: every.map((of) => front(of.flatMap(({ found }) => found))) };
    element("answer").textContent = answer(names, rows.map((of) => of.filter(Boolean)), every);
    element("said").textContent = data.arms[asked.arm].said[asked.model];
    element("caption").textContent = caption(names, current.fronts);
    element("front").replaceChildren();
    current.fronts.flat().forEach((one) => {
      const row = made("tr", "", element("front"));
      made("th", data.names[one.arm], row).scope = "row";
      [data.devices[one.device], count(one.tp), count(data.batches[one.batch])].forEach((text) => made("td", text, row));
      cells(one.figures.slice(0, USD + 1), WRITE, row);
    });
    const model = data.models[asked.model];
    element("command").textContent = [
      "sbd capacity --model", model.argument, ...devices.map((device) => "--hardware " + data.devices[device]),
      data.weights[asked.weights], data.kv[asked.kv], data.requests[asked.request], data.arms[asked.arm].arguments,
      "--batch", least === undefined ? data.batches[batch] : "BATCH",
      asked.degree > 0 ? "--tensor-parallel " + data.degrees[asked.degree - 1] : least === undefined ? "" : "--tensor-parallel TP",
      data.always,
    ].filter((part) => part !== "").join(" ") + model.where + (least === undefined ? "" : " (BATCH, TP: those of a row)");
    element("question").textContent = axes.map((name) => element(name).selectedOptions[0].textContent).join("; ");
    element("question").className = "print-only";
    element("point").textContent = "";
    draw();
  }

  element("form").addEventListener("change", show);
  element("form").hidden = false;
  element("chart").hidden = false;
  show();
  new ResizeObserver(([{ contentRect }]) => {
    if (element("picture").querySelector("svg")?.width.baseVal.value !== Math.max(280, contentRect.width)) draw();
  }).observe(element("picture"));
})();
