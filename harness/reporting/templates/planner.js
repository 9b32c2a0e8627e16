// Looks up predictions that the page carries (plan-data) and writes them down; no figure is computed here.
"use strict";
(() => {
  const element = (name) => document.getElementById("plan-" + name);
  const data = JSON.parse(element("data").textContent);
  const asked = ["model", "context", "batch", "choice", "load"];
  const chosen = (name) => Number(element(name).value);
  const inDigits = (value) =>
    value.toLocaleString("en-US", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
  const count = (value) => value.toLocaleString("en-US");
  const ratio = (value) => (Math.abs(value) < 9.995 ? value.toFixed(2) : inDigits(value)) + "x";

  function made(tag, text, parent) {
    const node = document.createElement(tag);
    node.textContent = text;
    parent.append(node);
    return node;
  }

  // A cell with [expected, what else low and high are], or the number of the reason why there is none.
  function cell(row, found, write, reasons) {
    const node = made("td", "", row);
    if (!Array.isArray(found)) {
      node.className = "absent";
      node.textContent = "none";
      if (found !== null) made("sup", reasons.number(found), node);
      return;
    }
    node.textContent = write(found[0]);
    node.dataset.value = found[0];
    if (found.length > 1) {
      node.dataset.low = Math.min(...found);
      node.dataset.high = Math.max(...found);
      made("small", write(Math.min(...found)) + " – " + write(Math.max(...found)), node);
    }
  }

  function gpus(row, found) {
    const node = made("td", count(found[0]), row);
    node.dataset.value = found[0];
    if (found.length === 2) {
      node.dataset.high = found[1];
      made("small", count(found[1]) + " with nothing overlapped", node);
    }
  }

  function arm(name, device, found, load, reasons) {
    const row = made("tr", "", element("rows"));
    row.dataset.device = device;
    row.dataset.arm = name;
    made("th", device, row).scope = "row";
    made("td", name, row);
    if (Array.isArray(found)) {
      gpus(row, found[5][load]);
      for (let i = 1; i < 5; i++) cell(row, found[i], inDigits, reasons);
    } else {
      for (let i = 0; i < 5; i++) cell(row, found, inDigits, reasons);
    }
    return row;
  }

  function show() {
    const [model, context, batch, choice, load] = asked.map(chosen);
    const wanted = chosen("device") - 1;  // the first option is all of them
    const seen = [];
    const reasons = {
      number(text) {
        if (!seen.includes(text)) seen.push(text);
        return seen.indexOf(text) + 1;
      },
    };
    element("rows").replaceChildren();
    let notes = [];
    data.devices.forEach((device, i) => {
      if (wanted >= 0 && wanted !== i) return;
      const place = ((model * data.devices.length + i) * data.contexts.length + context) * data.batches.length + batch;
      const [sbd, speedup, pays, noted] = data.sbd[place * data.choices.length + choice];
      const ntp = arm("NTP", device, data.ntp[place], load, reasons);
      made("td", data.itself, ntp).dataset.value = 1;
      made("td", data.none, ntp);
      const row = arm("SBD", device, sbd, load, reasons);
      cell(row, speedup, ratio, reasons);
      made("td", data.texts[pays], row);
      notes = data.notes[noted];
    });
    element("reasons").replaceChildren();
    for (const text of seen) made("li", data.texts[text], element("reasons"));
    element("notes").replaceChildren();
    for (const text of notes) made("li", data.texts[text], element("notes"));
    const planned = data.models[model];
    element("said").textContent = data.choices[choice].said[model];
    element("question").textContent = asked.map((name) => element(name).selectedOptions[0].textContent).join(", ");
    element("question").className = "print-only";
    const device = wanted < 0 ? data.devices : [data.devices[wanted]];
    element("command").textContent = [
      "sbd capacity --model", planned.argument, ...device.map((name) => "--hardware " + name),
      data.choices[choice].arguments, "--context", data.contexts[context], "--batch", data.batches[batch],
      data.loads[load],
    ].join(" ").trim() + planned.where;
  }

  element("form").addEventListener("change", show);
  element("form").hidden = false;
  show();
})();
