//! Lays text out in lines: a group is printed on one line if it fits, else each of its parts on its own.

/// Longest line that is not broken where it can be.
const LINE: usize = 108;

/// Text with places where it may be broken.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    kind: Kind,
    /// Columns it takes on one line.
    width: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    Text(String),
    /// A possible line break; on one line it is this text.
    Break(&'static str),
    Row(Vec<Layout>),
    /// Indents the lines that begin inside.
    Indented(Box<Layout>),
    /// Breaks all of its own breaks, or none.
    Group(Box<Layout>),
}

impl Layout {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Layout { width: text.len(), kind: Kind::Text(text) }
    }

    /// A space, or a new line.
    pub(crate) fn space() -> Self {
        Layout { width: 1, kind: Kind::Break(" ") }
    }

    /// Nothing, or a new line.
    pub(crate) fn seam() -> Self {
        Layout { width: 0, kind: Kind::Break("") }
    }

    pub(crate) fn row(parts: Vec<Layout>) -> Self {
        Layout { width: parts.iter().map(|part| part.width).sum(), kind: Kind::Row(parts) }
    }

    pub(crate) fn indented(self) -> Self {
        Layout { width: self.width, kind: Kind::Indented(Box::new(self)) }
    }

    pub(crate) fn group(self) -> Self {
        Layout { width: self.width, kind: Kind::Group(Box::new(self)) }
    }

    /// Stands on one line under no circumstances.
    pub(crate) fn broken(self) -> Self {
        Layout { width: LINE + 1, kind: self.kind }
    }

    /// Columns it takes on one line.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Puts `open` and `close` around it, and everything inside on lines of its own if it does not fit.
    pub(crate) fn enclosed(self, open: &str, close: &str) -> Self {
        let inside = Layout::row(vec![Layout::seam(), self]).indented();
        Layout::row(vec![Layout::text(open), inside, Layout::seam(), Layout::text(close)]).group()
    }

    /// The text, with all lines but the first indented by `depth` levels or more; the first begins at `column`.
    pub(crate) fn render(&self, depth: usize, column: usize) -> String {
        let mut printer = Printer { text: String::new(), column };
        printer.print(self, depth, false);
        printer.text
    }
}

struct Printer {
    text: String,
    column: usize,
}

impl Printer {
    fn print(&mut self, layout: &Layout, depth: usize, is_broken: bool) {
        match &layout.kind {
            Kind::Text(text) => self.push(text),
            Kind::Break(flat) if !is_broken => self.push(flat),
            Kind::Break(_) => {
                let indent = super::INDENT.repeat(depth);
                self.text.push('\n');
                self.text.push_str(&indent);
                self.column = indent.len();
            }
            Kind::Row(parts) => parts.iter().for_each(|part| self.print(part, depth, is_broken)),
            Kind::Indented(inside) => self.print(inside, depth + 1, is_broken),
            Kind::Group(inside) => self.print(inside, depth, self.column + layout.width > LINE),
        }
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.column += text.len();
    }
}
