// A mark of a figure tells its value on hover and focus; arrow keys go from mark to mark, Escape hides what is told.
"use strict";
{
  const bubble = document.createElement("div");
  bubble.className = "bubble";
  bubble.hidden = true;
  bubble.setAttribute("aria-hidden", "true"); // a screen reader reads the mark's own label
  document.body.append(bubble);
  const hide = () => { bubble.hidden = true; };
  const show = (mark) => {
    bubble.textContent = mark.getAttribute("aria-label");
    bubble.hidden = false;
    bubble.style.left = "0"; // else the place it had cuts its width
    const at = mark.getBoundingClientRect(), own = bubble.getBoundingClientRect();
    const most = document.documentElement.clientWidth - own.width - 4;
    const above = at.top - own.height - 8;
    bubble.style.left = `${Math.max(4, Math.min(at.left + (at.width - own.width) / 2, most)) + scrollX}px`;
    bubble.style.top = `${(above < 0 ? at.bottom + 8 : above) + scrollY}px`;
  };
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  for (const drawing of document.querySelectorAll("figure svg")) {
    const marks = [...drawing.querySelectorAll(".told")];
    for (const mark of marks) {
      mark.querySelector("title").remove(); // the browser's own bubble would come on top
      mark.addEventListener("pointerenter", () => show(mark));
      mark.addEventListener("focus", () => show(mark));
      mark.addEventListener("pointerleave", hide);
      mark.addEventListener("blur", hide);
    }
    drawing.addEventListener("keydown", (event) => {
      const from = marks.indexOf(document.activeElement), step = steps[event.key];
      if (from < 0 || !step) return;
      event.preventDefault();
      const next = marks[(from + step + marks.length) % marks.length];
      marks[from].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
}
